"""Samples that the literature knows to be odd, in data sets that everybody uses."""

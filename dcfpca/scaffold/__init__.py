"""Configurations with comments, and a consortium on one machine: for `dcfpca init`, `up`, `down` and `demo`."""

"""The algorithms: pure numpy and scipy, no I/O, no clock, no entropy of their own."""

"""The algorithms: pure numpy and scipy, no I/O, no clock, no entropy of their own."""

from typing import Literal

MethodName = Literal["subspace", "gradient"]  # here, so that commands offer the methods without loading the numerics

"""The arrays a local step works on."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

# Early rounds are worked in single precision: what they are about is far above its rounding.
WorkArray = NDArray[Any]
# As many zeros as directions: loops are compiled for the length of a tuple, so that sums over directions are unrolled.
Directions = tuple[int, ...]
LINE = 64  # bytes of a cache line

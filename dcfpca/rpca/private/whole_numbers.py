"""Columns and bases in whole numbers of so few bits that no product or sum of them rounds.

A matrix product in floating point rounds in an order that depends on the shape of the block and on a column's place in
it. Here a column is stated in units of a power of two of its own, in which its robust deviation has `column_bits` bits,
and the basis in units of 2^−`basis_bits`. Every sum of products is then a whole number below 2⁵³: it is exact in any
order, with or without fused operations, in a library's product or in a loop. By Cauchy and Schwarz, a partial sum of a
column times a direction is at most the length of the one times that of the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dcfpca.rpca.method import FloatArray

_EXACT_BITS = 53
FARTHEST_BITS = 6
"""Entries are stated no farther from zero than 2⁶ robust deviations of their column: all beyond are gross anyhow."""
_MOST_COLUMN_BITS = 18
"""With which no entry is stated by a number that single precision does not hold exactly (2²⁴)."""
_LENGTH_BITS = 10
"""A cleaned column has a mean square of at most (15 · 2)² = 2^9.8 squared units of its bits (`cleaning`)."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The bits with which columns of so many rows are stated."""

    rows: int

    @property
    def column_bits(self) -> int:
        """A column's deviation is at least 2^bits and below 2^(bits + 1); a sum of squares then stays below 2⁵³."""
        bits = (_EXACT_BITS - _LENGTH_BITS - math.ceil(math.log2(max(self.rows, 1)))) // 2
        return min(bits, _MOST_COLUMN_BITS)

    @property
    def basis_bits(self) -> int:
        """One bit is spare: a sum in which some entries are cleaned and others not is as long as both together."""
        return _EXACT_BITS - 2 - self.column_bits - FARTHEST_BITS - math.ceil(math.log2(max(self.rows, 1)) / 2.0)

    @property
    def farthest(self) -> float:
        """The largest whole number that an entry is stated by."""
        return 2.0 ** (self.column_bits + FARTHEST_BITS)


@dataclass(frozen=True, eq=False)
class WholeBasis:
    """An orthonormal basis (m × width) in whole units of 2^−bits, of which the first `rank` directions span L."""

    whole: FloatArray
    rank: int

    @staticmethod
    def of(U: FloatArray, rank: int) -> WholeBasis:
        """Round a basis."""
        return WholeBasis(np.rint(np.ldexp(U, FixedPoint(U.shape[0]).basis_bits)), rank)

    @cached_property
    def fixed(self) -> FixedPoint:
        """The bits of it and of columns beside it."""
        return FixedPoint(self.whole.shape[0])

    @cached_property
    def unit(self) -> float:
        """2^−bits."""
        return 2.0**-self.fixed.basis_bits

    @cached_property
    def entering(self) -> FloatArray:
        """The directions of L, contiguous (m × rank)."""
        return np.ascontiguousarray(self.whole[:, : self.rank])

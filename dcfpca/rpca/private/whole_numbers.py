"""Whole numbers, in which private sums are formed and noised without any rounding.

*Columns and bases* are stated in so few bits that no product or sum of them rounds. A matrix product in floating point
rounds in an order that depends on the shape of the block and on a column's place in it. Here a column is stated in
units of a power of two of its own, in which its robust deviation has `column_bits` bits, and the basis in units of
2^−`basis_bits`. Every sum of products is then a whole number below 2⁵³: it is exact in any order, with or without fused
operations, in a library's product or in a loop. By Cauchy and Schwarz, a partial sum of a column times a direction is
at most the length of the one times that of the other.

*Sums* live on a grid of 2⁻²⁴: a contribution is rounded to it, and noise is drawn in whole steps of it. The grid is
coarser than the steps of the secure sum and finer than the 53 bits of a float64 at the largest numbers, so that neither
saving an update nor masking it rounds again: what is opened is the sum of whole numbers.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.privacy.discrete_gaussian import Entropy, Integers, discrete_gaussian
from dcfpca.rpca.method import FloatArray, Total
from dcfpca.rpca.private.schedule import ROUNDING
from dcfpca.rpca.stage_checks import ORTHONORMAL

_EXACT_BITS = 53
FARTHEST_BITS = 6
"""Entries are stated no farther from zero than 2⁶ robust deviations of their column: all beyond are gross anyhow."""
_MOST_COLUMN_BITS = 18
"""An entry then has at most 24 bits; further bits would be hidden by the noise."""
_LENGTH_BITS = 10
"""A cleaned column has a mean square of at most (15 · 2)² = 2^9.8 squared units of its bits (`cleaning`)."""


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The bits with which columns of this many rows are stated."""

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


GRID_BITS = 24
EXPONENT = 26
"""Numbers of an update are below 2²⁶: a site has fewer than 2²⁴ columns, each of which adds at most one."""
MOST_COLUMNS = 2**24
_UNIT_ROUNDOFF = 2.0**-53


def noised(vector: FloatArray, deviation: float, honest: int, entropy: Entropy) -> FloatArray:
    """An update with this site's share of the noise, on the grid: `honest` sites together reach `deviation`."""
    if honest < 1:
        raise BadInput("the spec tolerates as many conspirators as the cohort has members", "lower conspirators")
    steps = _steps(vector)
    steps += discrete_gaussian(site_scale(deviation, honest), steps.size, entropy)
    if np.abs(steps).max(initial=0) >= 1 << (GRID_BITS + EXPONENT):
        raise BadInput("the noise does not fit the fixed point of the sum", "raise epsilon in the spec")
    noisy: FloatArray = np.ldexp(steps.astype(np.float64), -GRID_BITS)
    return noisy


def grid_digest(vector: FloatArray) -> bytes:
    """SHA-256 of an update as it is rounded to the grid, before any noise."""
    return hashlib.sha256(_steps(vector).data).digest()


def off_grid(total: Total) -> str:
    """Which law of the grid a sum of noised updates breaks; empty if none. Sums of whole steps are exact."""
    numbers, most = total.sums.flat(), float(total.contributors) * 2.0**EXPONENT
    if not (np.abs(numbers) < most).all():
        return "a number is larger than noised sums can be"
    steps = np.ldexp(numbers, GRID_BITS)
    return "" if np.array_equal(steps, np.rint(steps)) else "a number is not one that noised sums can be"


def site_scale(deviation: float, honest: int) -> int:
    """Deviation of one site's noise in steps, never below its share."""
    return math.ceil(math.ldexp(deviation, GRID_BITS) / math.sqrt(honest))


def _steps(vector: FloatArray) -> Integers:
    return np.rint(np.ldexp(vector, GRID_BITS)).astype(np.int64)


def check_rounding(rows: int, width: int, columns: int, block: int) -> None:
    """BadInput unless all rounding of a site's sum, with and without a column, stays within the allowance.

    A sum over n columns in blocks of b is off by at most u·n·(b + n/b + m) in each number, u the unit roundoff; the
    grid adds half a step. Both sums of an adjacent pair may be off. A basis that is rounded to whole numbers can make a
    column longer by as much as it is moved; one that is not quite orthonormal, by half of ORTHONORMAL a direction.
    """
    each = _UNIT_ROUNDOFF * columns * (block + columns / block + rows + 8.0) + 2.0 ** -(GRID_BITS + 1)
    moved = 2.0 ** -(FixedPoint(rows).basis_bits + 1)
    longer = math.sqrt(rows * max(width, 1)) * (2.0 * each + moved) + 0.5 * width * ORTHONORMAL
    if columns >= MOST_COLUMNS or longer > ROUNDING:
        raise BadInput(
            "the site has too many columns for the rounding that the privacy of its sums allows",
            "split the data over several sites, or lower the rank",
        )

"""Private sums live on a grid of 2⁻²⁴: a contribution is rounded to it, and noise is drawn in whole steps of it.

The grid is coarser than the steps of the secure sum and finer than the 53 bits of a float64 at the largest numbers,
so that neither saving an update nor masking it rounds again: what is opened is the sum of whole numbers.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.privacy.discrete_gaussian import Entropy, Integers, discrete_gaussian
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.orthonormality import ORTHONORMAL
from dcfpca.rpca.private.schedule import ROUNDING
from dcfpca.rpca.private.whole_numbers import FixedPoint

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

"""The robust deviation of every column, and the units in which the column is stated in whole numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.whole_numbers import FixedPoint
from dcfpca.rpca.thresholds import NORMAL_MEDIAN

DEVIATIONS = 3.0
"""Thresholds, in robust deviations."""
SAMPLED_ROWS = 128
VANISHING = 2.0**-20
"""A median below this share of the root mean square says nothing about the size of a column's entries."""
LEAST_SHARE = 0.5
"""Scale of residuals, over that of the column itself, below which thresholds do not fall: while U is not right yet,
rows of large entries would be taken for outliers, and be left out of the sum that could correct them."""
_EXPONENTS = 1000
"""A column whose deviation is not within 2^±1000 is left out: no clip is near it."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnUnits:
    """A column's unit is 2^exponent and its factor 2^−exponent, or 0 if it is left out; scales are in these units."""

    exponents: NDArray[np.int64]
    factors: FloatArray
    scales: FloatArray

    @property
    def limits(self) -> FloatArray:
        """Whole numbers that no entry of the first cleaning exceeds."""
        return np.floor(DEVIATIONS * self.scales)


def sampled(M: FloatArray) -> FloatArray:
    """The rows on which scales rest."""
    return M[:: -(-M.shape[0] // SAMPLED_ROWS)]


def column_units(M: FloatArray, fixed: FixedPoint) -> ColumnUnits:
    """Scale and unit of every column, each from that column alone."""
    scales = _own_scales(M)
    usable = np.isfinite(scales) & (scales > 2.0**-_EXPONENTS) & (scales < 2.0**_EXPONENTS)
    scales = np.where(usable, scales, 0.0)
    _, powers = np.frexp(scales)
    exponents = powers.astype(np.int64) - 1 - fixed.column_bits
    factors = np.where(usable, np.ldexp(1.0, np.clip(-exponents, -1022, 1023)), 0.0)
    return ColumnUnits(exponents, factors, scales * factors)


def residual_scales(E: FloatArray, L: FloatArray, own: FloatArray) -> FloatArray:
    """A robust deviation of E − L, both finite and on the sampled rows: between half of the column's own and all."""
    least = LEAST_SHARE * own
    scales = least.copy()
    # Only where the median is above the least does it have to be found.
    above = 2 * (NORMAL_MEDIAN * np.abs(E - L) <= least).sum(axis=0) < E.shape[0]
    if above.any():
        medians = lower_medians(np.abs(E[:, above] - L[:, above]))
        scales[above] = np.clip(NORMAL_MEDIAN * medians, least[above], own[above])
    return scales


def lower_medians(sizes: FloatArray) -> FloatArray:
    """The lower median of the finite sizes of each column; zero where there is none. Selected, not computed."""
    finite = np.isfinite(sizes)
    if finite.all():  # gives the same numbers as below: a median must not depend on whether another column has gaps
        middle = (sizes.shape[0] - 1) // 2
        medians: FloatArray = np.partition(sizes, middle, axis=0)[middle]
        return medians
    counts = finite.sum(axis=0)
    ordered = np.sort(np.where(finite, sizes, np.inf), axis=0)
    return np.where(counts > 0, ordered[np.maximum(counts - 1, 0) // 2, np.arange(sizes.shape[1])], 0.0)


def _own_scales(M: FloatArray) -> FloatArray:
    """1.4826 times the median of |M| on a fixed sample of rows; where it vanishes beside the largest there, it goes
    over to the root mean square of the column, continuously if all rows are sampled."""
    sizes = np.abs(sampled(M))
    scales = NORMAL_MEDIAN * lower_medians(sizes)
    vanishing = ~(scales > VANISHING * np.where(np.isfinite(sizes), sizes, 0.0).max(axis=0, initial=0.0))
    if vanishing.any():
        scales[vanishing] = _gone_over(scales[vanishing], M[:, vanishing])
    return scales


def _gone_over(medians: FloatArray, M: FloatArray) -> FloatArray:
    """Sums of squares are exact: each column is rounded to whole numbers of few bits, relative to its largest entry."""
    sizes = np.where(np.isfinite(M), np.abs(M), 0.0)
    largest = sizes.max(axis=0, initial=0.0)
    bits = (53 - M.shape[0].bit_length()) // 2
    whole = np.rint(np.ldexp(sizes / np.where(largest > 0.0, largest, 1.0), bits))
    squares = largest * np.ldexp(np.sqrt(np.einsum("ij,ij->j", whole, whole) / M.shape[0]), -bits)
    share = np.clip(medians / np.where(squares > 0.0, VANISHING * squares, 1.0), 0.0, 1.0)
    scales: FloatArray = share * medians + (1.0 - share) * squares
    return scales

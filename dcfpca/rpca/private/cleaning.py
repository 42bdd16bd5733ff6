"""The contribution of one column: its entries without gross errors, shortened to length one. Pure, column by column.

In units of a column's own (`whole_numbers`), with D the column in whole numbers, s its robust deviation, t the one of
E − L₁ but no less than s/2 and no more than s, and ψ the influence function of a threshold of 3t:

    E  = D, no farther from zero than 3s, zero where it is missing
    a₁ = UᵀE,   L₁ = U a₁
    Y₁ = L₁ + ψ(D − L₁)     where E is not D, or farther than 3t from L₁; Y₁ = E at all other entries
    a₂ = UᵀY₁,  L₂ = U a₂
    Y  = L₂ + ψ(D − L₂)     at the same entries; Y = E at all others

While there is no U yet, Y = ψ(D) under a threshold of 3s.

What happens to a column depends on that column and on the broadcast, never on another column: no scale, median or warm
start is shared. Coefficients and cleaned entries are rounded to whole numbers, all products of whole numbers are exact,
and everything else goes entry by entry, so that no bit of a column's result changes with the columns beside it.
Sensitivity then follows from the length alone. As |E| ≤ 3s and |ψ| ≤ 3t ≤ 3s entry by entry, a column of m rows has
|a₁| ≤ 3s√m, |a₂| ≤ |Y₁| ≤ 9s√m and |Y| ≤ 15s√m, which is what the bits of whole numbers rest on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.column_scales import DEVIATIONS, ColumnUnits, column_units, residual_scales, sampled
from dcfpca.rpca.private.schedule import LENGTH_BINS
from dcfpca.rpca.private.whole_numbers import WholeBasis

CONCAVITY = 3.0
NO_SIGN = 0.0
"""Added to make −0 into 0, so that the bits of a result say no more than its value."""


@dataclass(frozen=True, slots=True, eq=False)
class Cleaned:
    """Y (m × n), YᵀU (n × width) and the sums of squares of the columns of Y."""

    Y: FloatArray
    projections: FloatArray
    squares: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """What a block's columns add to a sum: Y in whole numbers, each column in units of its own, and YᵀU."""

    cleaned: Cleaned
    units: ColumnUnits

    def weights(self, clip: float) -> FloatArray:
        """1/max(C, ‖y‖)² of each column, in its units: ỹ(ỹᵀU) is y(yᵀU) times this."""
        with np.errstate(all="ignore"):  # a clip far beyond a column overflows, and leaves nothing of it
            return 1.0 / np.maximum(np.maximum(self.cleaned.squares, (clip * self.units.factors) ** 2), 1.0)

    def total(self, clip: float) -> FloatArray:
        """Σ ỹ(ỹᵀU). Nothing but this sum rounds."""
        total: FloatArray = self.cleaned.Y @ (self.cleaned.projections * self.weights(clip)[:, None])
        return total

    def length_counts(self) -> FloatArray:
        """A histogram of the columns' lengths, half an octave to a bin: every column counts in exactly one."""
        squares = self.cleaned.squares
        _, powers = np.frexp(squares)  # 2^(powers − 1) ≤ squares: the exponent of a square counts half octaves
        octaves = powers - 1 + 2 * self.units.exponents
        places = np.where(squares > 0.0, np.clip(octaves + LENGTH_BINS // 2, 0, LENGTH_BINS - 1), 0)
        return np.bincount(places, minlength=LENGTH_BINS).astype(np.float64)


def contributions(M: FloatArray, basis: WholeBasis, units: ColumnUnits | None = None) -> Contributions:
    """Clean the columns of a block; `units` are theirs, where they are known already."""
    with np.errstate(all="ignore"):  # a column of extreme numbers may overflow; it is then left out
        units = units or column_units(M, basis.fixed)
        return Contributions(clean(M, units, basis), units)


def clean(M: FloatArray, units: ColumnUnits, basis: WholeBasis) -> Cleaned:
    """Columns of M, each in its units, without gross errors."""
    D = np.multiply(M, units.factors, order="C")
    np.rint(D, out=D)
    if basis.rank:
        Y, sums = _without_gross(D, units, basis)
    else:
        Y = np.rint(influence(D, units.scales)) + NO_SIGN
        sums = Y.T @ basis.whole
    return Cleaned(Y, sums * basis.unit + NO_SIGN, np.einsum("ij,ij->j", Y, Y))


def _without_gross(D: FloatArray, units: ColumnUnits, basis: WholeBasis) -> tuple[FloatArray, FloatArray]:
    """Y and YᵀU."""
    E = np.minimum(D, units.limits)
    np.maximum(E, -units.limits, out=E)
    E[np.isnan(E)] = 0.0
    E += NO_SIGN
    sums = E.T @ basis.whole
    L = _low_rank(sums[:, : basis.rank], basis)
    scales = residual_scales(sampled(E), sampled(L), units.scales)
    gross = _GrossEntries.of(D, E, np.abs(E - L) > DEVIATIONS * scales, scales, basis.fixed.farthest)
    _, gained = gross.amended(L, basis.entering)
    cleaned, gained = gross.amended(_low_rank(sums[:, : basis.rank] + gained, basis), basis.whole)
    np.put(E, gross.places, cleaned)
    return E, sums + gained


def _low_rank(sums: FloatArray, basis: WholeBasis) -> FloatArray:
    L: FloatArray = basis.entering @ _rounded_coefficients(sums, basis).T
    return L


@dataclass(frozen=True, slots=True, eq=False)
class _GrossEntries:
    """The entries that E does not state, or states too far from L: where they are, row by row, and D and E there."""

    shape: tuple[int, int]
    places: NDArray[np.int64]
    columns: NDArray[np.int32]
    starts: NDArray[np.int32]
    entries: FloatArray
    own: FloatArray
    scales: FloatArray

    @staticmethod
    def of(
        D: FloatArray, E: FloatArray, marked: NDArray[np.bool_], scales: FloatArray, farthest: float
    ) -> _GrossEntries:
        """Those that are marked, or where E is not D."""
        marked |= D != E
        places = np.flatnonzero(marked)
        columns = (places % E.shape[1]).astype(np.int32)
        starts = np.searchsorted(places, E.shape[1] * np.arange(E.shape[0] + 1)).astype(np.int32)
        entries = np.clip(D.ravel()[places], -farthest, farthest)
        rows, count = E.shape
        return _GrossEntries((rows, count), places, columns, starts, entries, E.ravel()[places], scales[columns])

    def amended(self, L: FloatArray, U: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Y at these places, and what UᵀE gains by it."""
        low = L.ravel()[self.places]
        cleaned = np.rint(low + influence(self.entries - low, self.scales)) + NO_SIGN
        change: Any = scipy.sparse.csr_array((cleaned - self.own, self.columns, self.starts), shape=self.shape)
        return cleaned, change.T @ U


def _rounded_coefficients(sums: FloatArray, basis: WholeBasis) -> FloatArray:
    """UᵀY rounded to whole numbers, in units in which a product with the whole basis is L."""
    return np.rint(sums * basis.unit) * basis.unit


def influence(R: FloatArray, scales: FloatArray) -> FloatArray:
    """ψ(R) under thresholds of three scales, as in `thresholds.influence`; zero where R is NaN."""
    sizes = np.abs(R)
    room = np.maximum((CONCAVITY * (DEVIATIONS * scales) - sizes) / (CONCAVITY - 1.0), 0.0)
    return np.where(np.isnan(R), 0.0, np.copysign(np.minimum(sizes, room), R))


def bin_length(place: int) -> float:
    """The length in the middle of a bin."""
    return float(2.0 ** ((place + 0.5 - LENGTH_BINS // 2) / 2.0))

"""Columns cleaned in numpy: what `cleaning` states. Serves where there is no compiler.

As in `compiled_cleaning`, only gross entries are gone over twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.column_scales import DEVIATIONS, ColumnUnits, count_small, residual_scales, sampled
from dcfpca.rpca.private.whole_numbers import WholeBasis

CONCAVITY = 3.0
NO_SIGN = 0.0
"""Added to make −0 into 0: vector instructions take either for the larger one."""


@dataclass(frozen=True, slots=True, eq=False)
class Cleaned:
    """Y (m × n), YᵀU (n × width) and the sums of squares of the columns of Y."""

    Y: FloatArray
    projections: FloatArray
    squares: FloatArray


Cleaner = Callable[[FloatArray, ColumnUnits, WholeBasis], Cleaned]


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
    scales = residual_scales(sampled(E), sampled(L), units.scales, count_small)
    gross = _GrossEntries.of(D, E, np.abs(E - L) > DEVIATIONS * scales, scales, basis.fixed.farthest)
    _, gained = gross.amended(L, basis.entering)
    cleaned, gained = gross.amended(_low_rank(sums[:, : basis.rank] + gained, basis), basis.whole)
    np.put(E, gross.places, cleaned)
    return E, sums + gained


def _low_rank(sums: FloatArray, basis: WholeBasis) -> FloatArray:
    L: FloatArray = basis.entering @ rounded_coefficients(sums, basis).T
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


def rounded_coefficients(sums: FloatArray, basis: WholeBasis) -> FloatArray:
    """UᵀY rounded to whole numbers, in units in which a product with the whole basis is L."""
    return np.rint(sums * basis.unit) * basis.unit


def influence(R: FloatArray, scales: FloatArray) -> FloatArray:
    """ψ(R) under thresholds of three scales, as in `thresholds.influence`; zero where R is NaN."""
    sizes = np.abs(R)
    room = np.maximum((CONCAVITY * (DEVIATIONS * scales) - sizes) / (CONCAVITY - 1.0), 0.0)
    return np.where(np.isnan(R), 0.0, np.copysign(np.minimum(sizes, room), R))

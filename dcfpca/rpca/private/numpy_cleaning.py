"""Columns cleaned in numpy: what `cleaning` states, line by line. Serves where there is no compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.column_scales import DEVIATIONS, ColumnUnits, residual_scales, sampled
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
    D = np.rint(M * units.factors)
    if not basis.rank:
        Y = np.rint(influence(D, units.scales)) + NO_SIGN
    else:
        E = np.where(np.isnan(D), 0.0, np.clip(D, -units.limits, units.limits)) + NO_SIGN
        L = _low_rank(E, basis)
        scales = residual_scales(np.abs(sampled(E) - sampled(L)), units.scales)
        marked = (D != E) | (np.abs(E - L) > DEVIATIONS * scales)
        D = np.clip(D, -basis.fixed.farthest, basis.fixed.farthest)
        for _ in range(2):
            Y = np.where(marked, np.rint(L + influence(D - L, scales)) + NO_SIGN, E)
            L = _low_rank(Y, basis)
    return Cleaned(Y, (Y.T @ basis.whole) * basis.unit + NO_SIGN, np.einsum("ij,ij->j", Y, Y))


def _low_rank(Y: FloatArray, basis: WholeBasis) -> FloatArray:
    """U a with a = UᵀY rounded to whole numbers; exact but for that."""
    coefficients = np.rint((Y.T @ basis.entering) * basis.unit)
    L: FloatArray = basis.entering @ (coefficients * basis.unit).T
    return L


def influence(R: FloatArray, scales: FloatArray) -> FloatArray:
    """ψ(R) under thresholds of three scales, as in `thresholds.influence`; zero where R is NaN."""
    sizes = np.abs(R)
    room = np.maximum((CONCAVITY * (DEVIATIONS * scales) - sizes) / (CONCAVITY - 1.0), 0.0)
    return np.where(np.isnan(R), 0.0, np.copysign(np.minimum(sizes, room), R))

"""Robust projection of new columns onto a known subspace: which part of each column is normal, which entries are not.

U is fixed, so columns are independent problems. A Huber fit, which no minority of gross entries can carry away, gives
a first answer; least squares on the entries that agree with it removes the Huber fit's bias. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.exchange import FloatArray
from dcfpca.rpca.objective import LeftFactor, Penalties

NORMAL_MEDIAN = 1.4826  # deviation of a normal variable over the median of its size
OUTLIER_DEVIATIONS = 3.0
SMALLEST_SHARE = 1e-9  # residuals below this share of the column's scale are rounding, not noise
REFINEMENTS = 10


@dataclass(frozen=True, slots=True, eq=False)
class Projection:
    """M = Q coefficientsᵀ + outliers + noise for a block of columns; one row of coefficients per column."""

    coefficients: FloatArray
    outliers: FloatArray
    noise: FloatArray


def project(Q: FloatArray, M: FloatArray) -> Projection:
    """Split the columns of M (NaN: unobserved) by the subspace with orthonormal basis Q."""
    observed = ~np.isnan(M)
    scale = _deviations(np.where(observed, M, 0.0), observed)
    scale[scale == 0.0] = 1.0
    V = _huber_start(Q, M / scale) * scale[:, None]
    for column in range(M.shape[1]):
        V[column] = _refine(Q[observed[:, column]], M[observed[:, column], column], V[column])
    R = np.where(observed, M - Q @ V.T, 0.0)
    noise = np.maximum(_deviations(R, observed), SMALLEST_SHARE * scale)
    return Projection(V, np.where(np.abs(R) > OUTLIER_DEVIATIONS * noise, R, 0.0), noise)


def _huber_start(Q: FloatArray, M: FloatArray) -> FloatArray:
    """The Huber fit, first with a generous threshold, then with ones that follow the residual down."""
    V = np.zeros((M.shape[1], Q.shape[1]))
    for threshold in (1.0, 0.1):
        factor = LeftFactor.of(Q, Penalties(lambda_=threshold, rho=1e-6))
        V, _ = factor.minimize(M, V, 1e-3)
    return V


def _refine(Q: FloatArray, column: FloatArray, start: FloatArray) -> FloatArray:
    """Least squares on the entries that agree with the fit, until the same ones agree again."""
    v, agreed = start, np.zeros(0, dtype=bool)
    for _ in range(REFINEMENTS):
        agreeing = _agreeing(column - Q @ v, column)
        if np.array_equal(agreeing, agreed) or agreeing.sum() < Q.shape[1]:
            break
        v = np.asarray(np.linalg.lstsq(Q[agreeing], column[agreeing], rcond=None)[0], dtype=np.float64)
        agreed = agreeing
    return v


def _agreeing(R: FloatArray, column: FloatArray) -> NDArray[np.bool_]:
    size = np.abs(R)
    floor = SMALLEST_SHARE * float(np.max(np.abs(column), initial=0.0))
    within: NDArray[np.bool_] = size <= max(OUTLIER_DEVIATIONS * NORMAL_MEDIAN * float(np.median(size)), floor)
    return within


def _deviations(R: FloatArray, observed: NDArray[np.bool_]) -> FloatArray:
    """A robust standard deviation per column, over what is observed."""
    sizes = np.abs(R)
    found = [float(np.median(sizes[observed[:, j], j])) if observed[:, j].any() else 0.0 for j in range(R.shape[1])]
    return NORMAL_MEDIAN * np.array(found)

"""Robust projection of new columns onto a known subspace: separates each column's normal part from its outliers.

U is fixed, so columns are independent problems. A Huber fit, which a minority of gross entries cannot carry away, gives
a first answer; least squares on the entries that agree with it removes its bias. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.gradient.objective import LeftFactor, Penalties
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.thresholds import NORMAL_MEDIAN

OUTLIER_DEVIATIONS = 3.0
SMALLEST_SHARE = 1e-9  # residuals below this share of the column's scale are rounding, not noise
REFINEMENTS = 10
DRAWN, FEW_DIRECTIONS = 500, 8  # subsets of a column's entries, and how many directions they can tell
BEYOND_CHANCE = 2  # entries more than there are directions: so many never agree with wrong coefficients


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
    V = _refined(Q, M, observed, _huber_start(Q, M / scale) * scale[:, None])
    R = np.where(observed, M - Q @ V.T, 0.0)
    noise = np.maximum(_deviations(R, observed), SMALLEST_SHARE * scale)
    return Projection(V, np.where(np.abs(R) > OUTLIER_DEVIATIONS * noise, R, 0.0), noise)


def most_agreeing(Q: FloatArray, M: FloatArray, reach: float, start: FloatArray) -> FloatArray:
    """For each column of M the coefficients with which most entries agree to `reach`, of those through drawn entries;
    those of `start` where none has enough. For columns most of whose entries may be gross, of data without noise."""
    width, found = Q.shape[1], start.copy()
    if not 0 < width <= FEW_DIRECTIONS:
        return found
    rng = np.random.default_rng(0)
    for number, column in enumerate(M.T):
        seen = np.flatnonzero(~np.isnan(column))
        if seen.size < width + BEYOND_CHANCE:
            continue
        drawn = seen[rng.integers(seen.size, size=(DRAWN, width))]
        proposed = np.linalg.pinv(Q[drawn]) @ column[drawn][:, :, None]
        agreeing = np.abs(column[seen, None] - Q[seen] @ proposed[:, :, 0].T) <= reach
        counts = agreeing.sum(axis=0)
        if counts.max() >= width + BEYOND_CHANCE:
            places = seen[agreeing[:, np.argmax(counts)]]
            found[number] = np.linalg.lstsq(Q[places], column[places], rcond=None)[0]
    return found


def _huber_start(Q: FloatArray, M: FloatArray) -> FloatArray:
    """The Huber fit, first with a generous threshold, then with ones that follow the residual down."""
    V = np.zeros((M.shape[1], Q.shape[1]))
    for threshold in (1.0, 0.1):
        factor = LeftFactor.of(Q, Penalties(lambda_=threshold, rho=1e-6))
        V, _ = factor.minimize(M, V, 1e-3)
    return V


def _refined(Q: FloatArray, M: FloatArray, observed: NDArray[np.bool_], start: FloatArray) -> FloatArray:
    """Least squares on the entries that agree with the fit, until the same ones agree again; all columns at once."""
    V, agreed = start.copy(), np.zeros(M.shape, dtype=bool)
    floor = SMALLEST_SHARE * np.max(np.abs(M), axis=0, initial=0.0, where=observed)
    pending = np.arange(M.shape[1])
    for _ in range(REFINEMENTS):
        own = M[:, pending]
        sizes = np.where(observed[:, pending], np.abs(own - Q @ V[pending].T), np.inf)
        agreeing = sizes <= np.maximum(OUTLIER_DEVIATIONS * _deviations(sizes, observed[:, pending]), floor[pending])
        go_on = (agreeing != agreed[:, pending]).any(axis=0) & (agreeing.sum(axis=0) >= Q.shape[1])
        pending, agreeing = pending[go_on], agreeing[:, go_on]
        if pending.size == 0:
            break
        V[pending] = _least_squares(Q, np.where(agreeing, own[:, go_on], 0.0), agreeing)
        agreed[:, pending] = agreeing
    return V


def _least_squares(Q: FloatArray, M: FloatArray, chosen: NDArray[np.bool_]) -> FloatArray:
    """Fit each column on its chosen entries; elsewhere M is 0. Normal equations suit Q's orthonormal columns."""
    width, (upper, lower) = Q.shape[1], np.triu_indices(Q.shape[1])
    grams = np.empty((M.shape[1], width, width))
    grams[:, upper, lower] = grams[:, lower, upper] = chosen.T.astype(np.float64) @ (Q[:, upper] * Q[:, lower])
    V = np.zeros((M.shape[1], width))
    try:
        for _ in range(2):  # the second corrects the first's rounding
            left = np.where(chosen, M - Q @ V.T, 0.0)
            V += np.linalg.solve(grams, (left.T @ Q)[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        pairs = zip(chosen.T, M.T, strict=True)
        return np.stack([np.linalg.lstsq(Q[own], column[own], rcond=None)[0] for own, column in pairs])
    return V


def _deviations(R: FloatArray, observed: NDArray[np.bool_]) -> FloatArray:
    """A robust standard deviation of each column's observed entries; 0 where there are none."""
    counts = observed.sum(axis=0)
    ordered = np.sort(np.where(observed, np.abs(R), np.inf), axis=0)
    places, columns = np.maximum(counts - 1, 0), np.arange(R.shape[1])
    medians = 0.5 * (ordered[places // 2, columns] + ordered[(places + 1) // 2, columns])
    return np.where(counts > 0, NORMAL_MEDIAN * medians, 0.0)

"""The loops of `elementwise_loops` in numpy: the reference in their tests, and the fallback without numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray, WorkArray
from dcfpca.rpca.thresholds import firm, influence

# Residual sizes are counted in powers of two around the last known noise, from 2⁻¹⁴ to 2⁵ times it.
HISTOGRAM_LOWEST = -14
HISTOGRAM_BINS = 20
EXPONENT_SHIFT, EXPONENT_LAST, EXPONENT_BIAS = 52, 2047, 1022  # of a double without its sign
# As many zeros as directions: loops are compiled for the length of a tuple, so that sums over directions are unrolled.
Directions = tuple[int, ...]


def sweep(M: WorkArray, L: WorkArray, threshold: float, a: float, keep: float, relaxation: float) -> None:
    """L ← keep·L + ω ψ(M − L)."""
    influences = _influences(M, L, threshold, a, relaxation)
    L *= keep
    L += influences


def count(
    M: WorkArray,
    L: WorkArray,
    rows: NDArray[np.intp],
    threshold: float,
    a: float,
    unit: float,
    lowest: int,
    histogram: FloatArray,
) -> tuple[float, float]:
    """(Σ(ψ/unit)², the number with |ψ(r)| ≥ |r|/2) over these rows, counting sizes into the histogram."""
    sizes = np.abs(_beside(M, L)[rows])
    sizes = sizes[~np.isnan(sizes)]
    influences = influence(sizes, threshold, a)
    histogram += exponent_histogram(sizes, unit, lowest, histogram.size)
    return float(np.sum((influences / unit) ** 2)), float(np.count_nonzero(influences >= 0.5 * sizes))


def influence_pass(
    M: WorkArray,
    U: WorkArray,
    shrunk: WorkArray,
    threshold: float,
    a: float,
    influences: WorkArray,
    gained: WorkArray,
    directions: Directions,
) -> None:
    """influences ← ψ(M − U·shrunkᵀ), and gained ← influencesᵀ·U; kept only if `influences` has as many rows as M."""
    found = _influences(M, U @ shrunk.T, threshold, a, 1.0)
    gained[:] = found.T @ U
    if influences.shape[0] >= M.shape[0]:
        influences[: M.shape[0], : found.shape[1]] = found
        influences[: M.shape[0], found.shape[1] :] = 0.0


def thin_product(influences: WorkArray, right: WorkArray, product: WorkArray, directions: Directions) -> None:
    """product ← influences · rightᵀ, `right` being width × columns."""
    np.matmul(influences, right.T, out=product)


def outliers(
    M: WorkArray, L: FloatArray, threshold: float, a: float
) -> tuple[NDArray[np.int32], NDArray[np.int32], FloatArray, int, float]:
    """firm(M − L) as a sparse matrix by columns (their ends, rows, values); the number of missing entries; and Σ ψ²."""
    R = _beside(M, L).T
    columns, rows = np.nonzero(np.abs(R) > threshold)
    residuals, ends = R[columns, rows], np.zeros(L.shape[1] + 1, np.int32)
    np.cumsum(np.bincount(columns, minlength=L.shape[1]), out=ends[1:])
    values = firm(residuals, threshold, a)
    squares = np.sum(R**2, where=np.abs(R) <= threshold) + np.sum((residuals - values) ** 2)
    return ends, rows.astype(np.int32), values, int(np.count_nonzero(np.isnan(R))), float(squares)


def exponent_histogram(sizes: FloatArray, unit: float, lowest: int, bins: int, step: int = 1) -> FloatArray:
    """Counts of the non-zero sizes by powers of 2^step: bin k starts at unit·2^(lowest − 1 + k·step).

    The first and last bins also take what lies beyond. Counts, unlike medians, add up over sites.
    """
    # Counted by the bits of the exponent first: NaN and Inf have the last place, zero and what is next to it the first.
    exponents = np.divide(sizes, unit, dtype=np.float64).view(np.int64) >> EXPONENT_SHIFT
    counts = np.bincount(exponents.ravel(), minlength=EXPONENT_LAST + 1)
    places = np.clip((np.arange(1, EXPONENT_LAST) - EXPONENT_BIAS - lowest) // step, 0, bins - 1)
    return np.bincount(places, counts[1:EXPONENT_LAST], minlength=bins).astype(np.float64)


def _beside(M: WorkArray, L: WorkArray) -> WorkArray:
    """M − L over L's columns, where M may have more columns."""
    gap: WorkArray = M[:, : L.shape[1]] - L
    return gap


def _influences(M: WorkArray, L: WorkArray, threshold: float, a: float, relaxation: float) -> WorkArray:
    influences: WorkArray = influence(_beside(M, L), threshold, a)
    influences *= relaxation
    np.nan_to_num(influences, copy=False, nan=0.0)
    return influences


def histogram_quantile(share: float, counts: FloatArray, unit: float, lowest: int, step: int = 1) -> float:
    """The size below which this share of what `exponent_histogram` counted lies, sizes evenly spread within a bin.

    0 for no counts.
    """
    cumulative = np.cumsum(counts)
    wanted = share * cumulative[-1]
    if wanted <= 0.0:
        return 0.0
    place = int(np.searchsorted(cumulative, wanted))
    part = (wanted - cumulative[place] + counts[place]) / counts[place]
    low = unit * 2.0 ** (lowest - 1 + place * step)
    return float(low * (1.0 + part * (2.0**step - 1.0)))

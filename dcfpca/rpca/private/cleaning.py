"""The contribution of one column: its entries without gross errors, shortened to length one. Pure, column by column.

Whatever is done to a column here depends on that column and on what was broadcast, never on another column: no scale,
median or warm start is shared. Sensitivity then follows from the length alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.schedule import LENGTH_BINS
from dcfpca.rpca.thresholds import NORMAL_MEDIAN, influence

PASSES = 4
DEVIATIONS = 3.0
CONCAVITY = 3.0
SAMPLED_ROWS = 128


def cleaned(M: FloatArray, U: FloatArray) -> FloatArray:
    """Y = M − firm(M − L) with L in the span of U (m × 0: L = 0); what is not observed is imputed by L."""
    with np.errstate(all="ignore"):  # a column of extreme numbers may overflow; `shortened` then leaves it out
        observed = np.isfinite(M)
        whole = bool(observed.all())
        data = M if whole else np.where(observed, M, 0.0)
        Y = _explained(data, observed, whole)
        for _ in range(PASSES if U.shape[1] else 0):
            L = U @ (U.T @ Y)
            Y = L + _explained(np.where(observed, data - L, 0.0) if not whole else data - L, observed, whole)
    return Y


def shortened(Y: FloatArray, clip: float) -> FloatArray:
    """Ỹ: columns in units of `clip`, none longer than one; a column with numbers that are not finite is left out."""
    with np.errstate(all="ignore"):
        largest = np.abs(Y).max(axis=0, initial=0.0)
        usable = np.isfinite(largest) & (largest > 0.0)
        unit = np.where(usable, Y, 0.0) / np.where(usable, largest, 1.0)
        # Squares of numbers up to one neither overflow nor, where they matter, underflow.
        norms = np.maximum(np.linalg.norm(unit, axis=0), 1.0)
        lengths = np.minimum(largest / clip * norms, 1.0)
        scaled: FloatArray = unit * np.where(usable, lengths, 0.0) / norms
    return scaled


def length_counts(Y: FloatArray) -> FloatArray:
    """A histogram of the columns' lengths: every column counts in exactly one bin."""
    with np.errstate(all="ignore"):
        largest = np.abs(Y).max(axis=0, initial=0.0)
        usable = np.isfinite(largest) & (largest > 0.0)
        unit = np.where(usable, Y, 0.0) / np.where(usable, largest, 1.0)
        octaves = np.log2(np.where(usable, largest, 1.0)) + np.log2(np.maximum(np.linalg.norm(unit, axis=0), 1.0))
    places = np.clip(np.floor(2.0 * octaves) + LENGTH_BINS // 2, 0, LENGTH_BINS - 1).astype(np.int64)
    return np.bincount(np.where(usable, places, 0), minlength=LENGTH_BINS).astype(np.float64)


def bin_length(place: int) -> float:
    """The length in the middle of a bin."""
    return float(2.0 ** ((place + 0.5 - LENGTH_BINS // 2) / 2.0))


def _explained(R: FloatArray, observed: NDArray[np.bool_], whole: bool) -> FloatArray:
    """ψ(R) under each column's own threshold; zero where nothing was observed."""
    threshold = DEVIATIONS * _scales(R, observed, whole)
    return influence(R, threshold, CONCAVITY)


def _scales(R: FloatArray, observed: NDArray[np.bool_], whole: bool) -> FloatArray:
    """A robust deviation of each column on a fixed sample of rows; root mean square where the median is zero."""
    step = -(-R.shape[0] // SAMPLED_ROWS)
    sample, seen = np.abs(R[::step]), observed[::step]
    # Both branches give the same lower median: a column's scale must not depend on whether another one has gaps.
    if whole:
        middle = (sample.shape[0] - 1) // 2
        medians = np.partition(sample, middle, axis=0)[middle]
    else:
        counts = seen.sum(axis=0)
        ordered = np.sort(np.where(seen, sample, np.inf), axis=0)
        medians = np.where(counts > 0, ordered[np.maximum(counts - 1, 0) // 2, np.arange(R.shape[1])], 0.0)
    squares = np.sqrt(np.mean(R**2, axis=0))
    scales: FloatArray = np.where(medians > 0.0, NORMAL_MEDIAN * medians, squares)
    return scales

"""Counts of sizes per feature in logarithmic bins, whose sums over sites give every feature's quantiles."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray

LOWEST = -7.0  # log2 of the upper edge of the first bin, in the feature's unit
PER_OCTAVE = 4
BINS = 56  # the first bin also counts what lies below, the last what lies above
EDGES = 2.0 ** (LOWEST + np.arange(BINS - 1) / PER_OCTAVE)


def count_sizes(sizes: FloatArray, unit: FloatArray) -> FloatArray:
    """Row by row, how many sizes (NaN: none) lie in each bin; bins are in units of the row's `unit`."""
    rows = sizes.shape[0]
    with np.errstate(divide="ignore", over="ignore"):
        place = np.ceil((np.log2(sizes / unit[:, None]) - LOWEST) * PER_OCTAVE)
    known = ~np.isnan(sizes)
    place = np.clip(np.where(known, place, 0.0), 0, BINS - 1).astype(np.intp)
    flat = (place + BINS * np.arange(rows)[:, None])[known]
    return np.bincount(flat, minlength=rows * BINS).reshape(rows, BINS).astype(np.float64)


def quantile(counts: FloatArray, unit: FloatArray, level: float) -> FloatArray:
    """Each row's quantile, evenly spread within its bin; 0 where it lies in the first bin, or nothing was counted."""
    cumulative = np.cumsum(counts, axis=1)
    wanted = level * cumulative[:, -1]
    place = np.minimum((cumulative < wanted[:, None]).sum(axis=1), BINS - 1)
    rows = np.arange(counts.shape[0])
    here = np.maximum(counts[rows, place], 1e-300)
    share = np.clip(1.0 - (cumulative[rows, place] - wanted) / here, 0.0, 1.0)
    low = EDGES[np.clip(place - 1, 0, BINS - 2)]
    high = EDGES[np.clip(place, 0, BINS - 2)]
    value = np.where(place == 0, 0.0, np.where(place == BINS - 1, EDGES[-1], low + share * (high - low)))
    return np.where(cumulative[:, -1] > 0.0, value * unit, 0.0)


def count_above(counts: FloatArray, unit: FloatArray, size: FloatArray) -> FloatArray:
    """How many of each row lie above this size, evenly spread within bins; those of the last bin only where all do."""
    beyond = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]  # how many lie in this bin or above
    log = (np.log2(np.maximum(size / unit, 1e-300)) - LOWEST) * PER_OCTAVE
    place = np.clip(np.ceil(log), 0, BINS - 1).astype(np.intp)
    rows = np.arange(counts.shape[0])
    within = np.where(place == BINS - 1, 1.0, np.clip(place - log, 0.0, 1.0))
    above = np.where(place + 1 < BINS, beyond[rows, np.minimum(place + 1, BINS - 1)], 0.0)
    return above + within * counts[rows, place]

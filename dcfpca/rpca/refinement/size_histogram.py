"""Counts of sizes per feature in logarithmic bins, whose sums over sites give every feature's quantiles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.method import FloatArray


@dataclass(frozen=True, slots=True)
class Bins:
    """Bins from 2^−octaves to 2^octaves times a feature's unit; the first also counts below, the last also above."""

    octaves: int
    per_octave: int

    @property
    def count(self) -> int:
        """How many bins."""
        return 2 * self.octaves * self.per_octave

    @property
    def edges(self) -> FloatArray:
        """The upper edges of all bins but the last, in units of the feature."""
        return np.asarray(2.0 ** (np.arange(1, self.count) / self.per_octave - self.octaves))

    def place(self, sizes: FloatArray) -> FloatArray:
        """Where sizes lie on the scale of bins, as real numbers: bin j holds what lies in (j, j + 1]."""
        with np.errstate(divide="ignore"):
            return np.asarray((np.log2(sizes) + self.octaves) * self.per_octave)


ON_EDGE = 1e-7  # of a bin
RESIDUAL_BINS = Bins(octaves=7, per_octave=4)
MARGINAL_BINS = Bins(octaves=7, per_octave=2)


def count_sizes(sizes: FloatArray, unit: FloatArray, bins: Bins) -> FloatArray:
    """Row by row, how many sizes (NaN: none) lie in each bin; bins are in units of the row's `unit`."""
    rows, known = sizes.shape[0], ~np.isnan(sizes)
    # Values on an edge, as discrete data has them, must not change bins by rounding: then the split would show.
    place = np.ceil(bins.place(np.where(known, sizes, 1.0) / unit[:, None]) - ON_EDGE) - 1.0
    place = np.clip(place, 0, bins.count - 1).astype(np.intp)
    flat = (place + bins.count * np.arange(rows)[:, None])[known]
    return np.bincount(flat, minlength=rows * bins.count).reshape(rows, bins.count).astype(np.float64)


def quantile(counts: FloatArray, unit: FloatArray, level: float, bins: Bins) -> FloatArray:
    """Each row's quantile, evenly spread within its bin; 0 where it lies in the first bin, or nothing was counted."""
    cumulative, rows = np.cumsum(counts, axis=1), np.arange(counts.shape[0])
    wanted = level * cumulative[:, -1]
    place = np.minimum((cumulative < wanted[:, None] * (1.0 - 1e-12)).sum(axis=1), bins.count - 1)
    here = np.maximum(counts[rows, place], np.finfo(np.float64).tiny)
    share = np.clip(1.0 - (cumulative[rows, place] - wanted) / here, 0.0, 1.0)
    edges = bins.edges
    low, high = edges[np.clip(place - 1, 0, None)], edges[np.clip(place, 0, bins.count - 2)]
    value = np.where(place == 0, 0.0, low + share * (high - low))
    return np.where(cumulative[:, -1] > 0.0, value * unit, 0.0)


def count_above(counts: FloatArray, unit: FloatArray, size: FloatArray, bins: Bins) -> FloatArray:
    """How many of each row lie above this size, spread evenly over the logarithm within bins.

    What the last bin counts lies above any size below its end: nothing is known of how far.
    """
    beyond = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]  # how many lie in this bin or above
    position = np.clip(bins.place(np.maximum(size / unit, np.finfo(np.float64).tiny)), 0.0, bins.count - 1.0)
    place, rows = np.floor(position).astype(np.intp), np.arange(counts.shape[0])
    last = place == bins.count - 1
    above = np.where(last, 0.0, beyond[rows, np.minimum(place + 1, bins.count - 1)])
    return np.asarray(above + np.where(last, 1.0, place + 1.0 - position) * counts[rows, place])

"""Scales per feature from summed counts: of the noise that weighs entries in the fit, and of the null that flags them.

A median-based scale collapses if a few directions explain half of a feature's entries exactly. Here the scale of the
fit comes from the median, raised until at most a quarter of the entries is without weight; the scale of flags comes
from the 85 % quantile. So the scale of a feature remains the scale of most of its entries. Sizes are counted in
logarithmic bins, whose sums over sites give every feature's quantiles.

Real residuals have heavier tails than normal noise: the scale of the null is raised until hardly any of the feature's
entries lies in the shoulder from 3 to 5 scales, where a normal tail has run out and scattered gross errors are rare. It
is raised at most to half of the feature's own spread. An entry's p-value is that of z = R/scale under the normal
distribution; the cut is Benjamini and Hochberg's over all entries of all sites.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dcfpca.rpca.kernels.refinement_loops import TUKEY, refinement_loops
from dcfpca.rpca.method import FloatArray

FIT_LEVEL = 0.5  # of the sizes of residuals: errors in a tenth or a fifth of a feature hardly widen it
WEIGHED_LEVEL = 0.75  # at most a quarter of a feature's entries is without weight in the fit
FLAG_LEVEL = 0.85  # at most 15 % of a feature's entries can be flagged by their size alone
HIGHER_LEVELS = (0.9, 0.95, 0.99, 0.999, 0.9999)  # where one value is so frequent that the quantile is zero
REACH_LEVEL = 0.99
LEAST_FREEDOM = 0.02
LEAST_OF_SPREAD = 1e-3  # the noise of a feature is not taken to be smaller than this share of its spread


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

    @property
    def steps(self) -> FloatArray:
        """The edges of an octave that begins at 1, a little above it, as `count_sizes` has them."""
        return np.asarray(2.0 ** ((np.arange(self.per_octave) + ON_EDGE) / self.per_octave))

    def place(self, sizes: FloatArray) -> FloatArray:
        """Where sizes lie on the scale of bins, as real numbers: bin j holds what lies in (j, j + 1]."""
        with np.errstate(divide="ignore"):
            return np.asarray((np.log2(sizes) + self.octaves) * self.per_octave)


ON_EDGE = 1e-7  # of a bin
RESIDUAL_BINS = Bins(octaves=7, per_octave=3)
MARGINAL_BINS = Bins(octaves=7, per_octave=2)


def count_sizes(sizes: FloatArray, unit: FloatArray, bins: Bins) -> FloatArray:
    """Row by row, how many sizes (NaN: none) lie in each bin; bins are in units of the row's `unit`."""
    rows, known = sizes.shape[0], ~np.isnan(sizes)
    # Values on an edge, which discrete data has, must not change bins by rounding: otherwise the split into sites would
    # matter.
    place = np.ceil(bins.place(np.where(known, sizes, 1.0) / unit[:, None]) - ON_EDGE) - 1.0
    place = np.clip(place, 0, bins.count - 1).astype(np.intp)
    flat = (place + bins.count * np.arange(rows)[:, None])[known]
    return np.bincount(flat, minlength=rows * bins.count).reshape(rows, bins.count).astype(np.float64)


def count_sides(off: FloatArray, unit: FloatArray, bins: Bins, least: float) -> tuple[FloatArray, FloatArray]:
    """`count_sizes` of the sizes above `least` units, and of the others."""
    if (loops := refinement_loops()) is not None:
        over, under = np.zeros((len(off), bins.count)), np.zeros((len(off), bins.count))
        loops.count_sides(off, unit, least, bins.octaves, bins.steps, over, under)
        return over, under
    above = off > least * unit[:, None]
    sides = np.where(above, off, np.nan), np.where(above, np.nan, np.abs(off))
    return count_sizes(sides[0], unit, bins), count_sizes(sides[1], unit, bins)


def quantile(counts: FloatArray, unit: FloatArray, level: FloatArray | float, bins: Bins) -> FloatArray:
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

    Entries in the last bin count as above any size below its end: how far they lie beyond is unknown.
    """
    beyond = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]  # how many lie in this bin or above
    position = np.clip(bins.place(np.maximum(size / unit, np.finfo(np.float64).tiny)), 0.0, bins.count - 1.0)
    place, rows = np.floor(position).astype(np.intp), np.arange(counts.shape[0])
    last = place == bins.count - 1
    above = np.where(last, 0.0, beyond[rows, np.minimum(place + 1, bins.count - 1)])
    return np.asarray(above + np.where(last, 1.0, place + 1.0 - position) * counts[rows, place])


def normal_quantile(level: float) -> float:
    """The size that this share of normal deviates does not exceed."""
    return float(scipy.special.ndtri(0.5 + 0.5 * level))


def deviation(counts: FloatArray, unit: FloatArray, level: float, bins: Bins) -> FloatArray:
    """The deviation of the normal distribution that has this quantile of sizes; of a higher one where it is zero."""
    found = quantile(counts, unit, level, bins) / normal_quantile(level)
    for higher in HIGHER_LEVELS:
        found = np.where(found > 0.0, found, quantile(counts, unit, higher, bins) / normal_quantile(higher))
    # Nothing lies above the first bin: the unit was far too large, and the next round counts in a smaller one.
    return np.where(found > 0.0, found, bins.edges[0] * unit)


def fit_noise(
    counts: FloatArray, unit: FloatArray, spread: FloatArray, leverage: FloatArray, one_value: FloatArray
) -> FloatArray:
    """The noise per feature, which is the unit of the fit's weights.

    If half of the residuals are too small to count because half of the feature's entries have one value, its noise is
    that of the other entries. Otherwise the model explains these entries that well, and the others may all be errors.

    A feature that has a direction nearly to itself leaves hardly any residual, whatever its values. What counts then is
    how far they lie from what the other features predict: the residual over one minus the leverage.
    """
    free = np.maximum(1.0 - leverage, LEAST_FREEDOM)
    least = quantile(counts, unit, WEIGHED_LEVEL, RESIDUAL_BINS) / TUKEY
    middle = np.maximum(quantile(counts, unit, FIT_LEVEL, RESIDUAL_BINS), RESIDUAL_BINS.edges[0] * unit)
    others = deviation(counts, unit, FIT_LEVEL, RESIDUAL_BINS)
    found = np.maximum(np.where(one_value > FIT_LEVEL, others, middle / normal_quantile(FIT_LEVEL)), least)
    found = np.minimum(found / free, np.maximum(spread, unit))
    return np.maximum(found, LEAST_OF_SPREAD * spread)


@dataclass(frozen=True, slots=True, eq=False)
class Marginals:
    """Per feature: the median, the spread about it, how far from it nearly all values lie, and the shares of its
    entries that one value makes up, and two values together."""

    median: FloatArray
    spread: FloatArray
    reach: FloatArray
    one_value: FloatArray
    two_values: FloatArray


def marginals(above: FloatArray, below: FloatArray, guess: FloatArray, unit: FloatArray) -> Marginals:
    """Of features, from counts of how far their values lie above and below a guess of the median.

    Repeated with the last result as the next guess, the counts converge to both.
    """
    total = np.maximum(above.sum(axis=1) + below.sum(axis=1), np.finfo(np.float64).tiny)
    median = guess + median_of_sides(above, below, unit, MARGINAL_BINS)
    spread = deviation(above + below, unit, FLAG_LEVEL, MARGINAL_BINS)
    reach = np.maximum(quantile(above + below, unit, REACH_LEVEL, MARGINAL_BINS), spread)
    return Marginals(median, spread, reach, *_tied(above, below, total))


def _tied(above: FloatArray, below: FloatArray, total: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The shares of the fullest bin, and of the two fullest: of continuous values at most a tenth and a fifth."""
    at_median = above[:, :1] + below[:, :1]
    bins = np.sort(np.column_stack([at_median, above[:, 1:], below[:, 1:]]), axis=1)
    return bins[:, -1] / total, (bins[:, -1] + bins[:, -2]) / total


def median_of_sides(above: FloatArray, below: FloatArray, unit: FloatArray, bins: Bins) -> FloatArray:
    """How far the median lies from the point that sizes were counted above and below of; 0 if nothing was counted."""
    over, under = above.sum(axis=1), below.sum(axis=1)
    half = 0.5 * (over + under)
    up = _quantile_of_rows(above, unit, (over - half) / np.maximum(over, 1e-300), bins)
    down = _quantile_of_rows(below, unit, (under - half) / np.maximum(under, 1e-300), bins)
    return np.where(over + under > 0.0, np.where(over > under, up, -down), 0.0)


def _quantile_of_rows(counts: FloatArray, unit: FloatArray, levels: FloatArray, bins: Bins) -> FloatArray:
    cumulative = np.cumsum(counts, axis=1) / np.maximum(counts.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    edges = np.concatenate([[0.0], bins.edges, [2.0**bins.octaves]])
    # Entries in the first bin are the value itself: a step within it would put the median of a feature of few values
    # between two of them.
    edges[1] = 0.0
    rows = zip(cumulative, np.clip(levels, 0.0, 1.0), strict=True)
    return np.array([np.interp(level, np.concatenate([[0.0], row]), edges) for row, level in rows]) * unit


DISTANCE_LEVELS = ((0.85, 0.85), (0.98, 0.99))  # of the counts, and of χ²: coefficients of real tables have heavy tails
DISTANCE_BINS = Bins(octaves=10, per_octave=4)


def distance_scale(counts: FloatArray, unit: float, rank: int) -> float:
    """What T² is divided by to be no larger than χ² of as many degrees of freedom, at its 85 % quantile and far out."""
    if rank == 0:
        return 1.0
    excess = [
        float(quantile(counts[None, :], np.array([unit]), level, DISTANCE_BINS)[0])
        / float(scipy.special.chdtri(rank, 1.0 - normal))
        for level, normal in DISTANCE_LEVELS
    ]
    return max(1.0, *excess)


def distance_p_value(distance: FloatArray, rank: int) -> FloatArray:
    """The probability of a T² at least as large."""
    return np.asarray(scipy.special.chdtrc(rank, distance))


def fresh_distance_p_value(distance: FloatArray, rank: int, columns: float) -> FloatArray:
    """The same for a column that had no part in the model of this many columns: Hotelling's F."""
    rest = max(columns - rank, 1.0)
    unit = rank * (columns + 1.0) * (columns - 1.0) / (columns * rest)
    return np.asarray(scipy.special.fdtrc(rank, rest, distance / unit))


def column_p_value(p_values: FloatArray) -> FloatArray:
    """Simes' combination of the p-values of each column's entries (NaN: unobserved); 1 for a column without any."""
    p = np.sort(np.where(np.isnan(p_values), 2.0, p_values), axis=0)
    seen = np.maximum(np.count_nonzero(~np.isnan(p_values), axis=0), 1)
    place = np.arange(1, p.shape[0] + 1)[:, None]
    combined = np.where(p <= 1.0, p * seen / place, 1.0)
    return np.asarray(np.minimum(combined.min(axis=0, initial=1.0), 1.0))

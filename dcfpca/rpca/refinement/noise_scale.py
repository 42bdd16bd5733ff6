"""Scales per feature from summed counts, guarded so that no feature's scale can vanish while its residuals do not.

A median-based scale implodes when half of a feature's entries can be explained exactly by a few directions. Here the
scale of the fit comes from the median, raised until at most a quarter of the entries is without weight; the
scale of flags comes from the 85 % quantile. So a feature's scale stays that of most of its entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.column_fit import TUKEY
from dcfpca.rpca.refinement.size_histogram import MARGINAL_BINS, RESIDUAL_BINS, Bins, quantile

FIT_LEVEL = 0.5  # of the sizes of residuals: errors in a tenth or a fifth of a feature hardly widen it
WEIGHED_LEVEL = 0.75  # at most a quarter of a feature's entries is without weight in the fit
FLAG_LEVEL = 0.85  # at most 15 % of a feature's entries can be flagged by their size alone
HIGHER_LEVELS = (0.9, 0.95, 0.99)  # where one value makes up so much of a feature that the level's quantile is zero
REACH_LEVEL = 0.99
LEAST_FREEDOM = 0.02
LEAST_OF_SPREAD = 1e-3  # the noise of a feature is not taken to be smaller than this share of its spread


def normal_quantile(level: float) -> float:
    """Which size this share of normal deviates does not exceed."""
    return float(scipy.special.ndtri(0.5 + 0.5 * level))


def deviation(counts: FloatArray, unit: FloatArray, level: float, bins: Bins) -> FloatArray:
    """The deviation of the normal distribution that has this quantile of sizes; of a higher one where it is zero."""
    found = quantile(counts, unit, level, bins) / normal_quantile(level)
    for higher in HIGHER_LEVELS:
        found = np.where(found > 0.0, found, quantile(counts, unit, higher, bins) / normal_quantile(higher))
    # Nothing above the first bin: the unit was far too large, and the next round counts in a smaller one.
    return np.where(found > 0.0, found, bins.edges[0] * unit)


def fit_noise(counts: FloatArray, unit: FloatArray, spread: FloatArray, leverage: FloatArray) -> FloatArray:
    """The noise per feature that the weights of the fit are in units of.

    A feature that has a direction nearly to itself leaves hardly a residual whatever its values are: what counts is how
    far they lie from what the other features predict, and that is the residual over one minus the leverage.
    """
    free = np.maximum(1.0 - leverage, LEAST_FREEDOM)
    least = quantile(counts, unit, WEIGHED_LEVEL, RESIDUAL_BINS) / TUKEY
    found = np.maximum(deviation(counts, unit, FIT_LEVEL, RESIDUAL_BINS), least)
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

    Repeated with the last result as the next guess, the counts narrow in on both.
    """
    total = np.maximum(above.sum(axis=1) + below.sum(axis=1), np.finfo(np.float64).tiny)
    median = guess + _median(above, below, unit)
    spread = deviation(above + below, unit, FLAG_LEVEL, MARGINAL_BINS)
    reach = np.maximum(quantile(above + below, unit, REACH_LEVEL, MARGINAL_BINS), spread)
    return Marginals(median, spread, reach, *_tied(above, below, total))


def _tied(above: FloatArray, below: FloatArray, total: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The shares of the fullest bin, and of the two fullest: of continuous values at most a tenth and a fifth."""
    at_median = above[:, :1] + below[:, :1]
    bins = np.sort(np.column_stack([at_median, above[:, 1:], below[:, 1:]]), axis=1)
    return bins[:, -1] / total, (bins[:, -1] + bins[:, -2]) / total


def residual_median(sizes: FloatArray, positive: FloatArray, unit: FloatArray) -> FloatArray:
    """The median residual of each feature, from counts of all sizes (RESIDUAL_BINS) and of positive residuals."""
    whole = sizes.reshape(sizes.shape[0], MARGINAL_BINS.count, -1).sum(axis=2)  # two bins of the one make one
    return _median(positive, np.maximum(whole - positive, 0.0), unit)


def _median(above: FloatArray, below: FloatArray, unit: FloatArray) -> FloatArray:
    """How far the median lies from the point that sizes were counted above and below of; 0 if nothing was counted."""
    over, under = above.sum(axis=1), below.sum(axis=1)
    half = 0.5 * (over + under)
    up = _quantile_of_rows(above, unit, (over - half) / np.maximum(over, 1e-300))
    down = _quantile_of_rows(below, unit, (under - half) / np.maximum(under, 1e-300))
    return np.where(over + under > 0.0, np.where(over > under, up, -down), 0.0)


def _quantile_of_rows(counts: FloatArray, unit: FloatArray, levels: FloatArray) -> FloatArray:
    cumulative = np.cumsum(counts, axis=1) / np.maximum(counts.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    edges = np.concatenate([[0.0], MARGINAL_BINS.edges, [2.0**MARGINAL_BINS.octaves]])
    rows = zip(cumulative, np.clip(levels, 0.0, 1.0), strict=True)
    return np.array([np.interp(level, np.concatenate([[0.0], row]), edges) for row, level in rows]) * unit

"""Scales per feature from summed counts, guarded so that no feature's scale can vanish while its residuals do not.

A median-based scale implodes when half of a feature's entries can be explained exactly by a few directions. Here the
scale of the fit comes from the third quartile, and the scale of flags from the 85 % quantile: a feature's scale stays
that of most of its entries, at most a quarter (of flags: 15 %) of which may be outliers.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.size_histogram import EDGES, quantile

FIT_LEVEL = 0.75  # of the sizes of residuals; at most a quarter of a feature's entries is without weight in the fit
FLAG_LEVEL = 0.85  # at most 15 % of a feature's entries can be flagged by their size alone
HIGHER_LEVELS = (0.9, 0.95, 0.99)  # where one value makes up so much of a feature that the level's quantile is zero
LEAST_OF_SPREAD = 1e-3  # the noise of a feature is not taken to be smaller than this share of its spread


def normal_quantile(level: float) -> float:
    """Which size this share of normal deviates does not exceed."""
    return float(ndtri(0.5 + 0.5 * level))


def deviation(counts: FloatArray, unit: FloatArray, level: float) -> FloatArray:
    """The deviation of the normal distribution that has this quantile of sizes; of a higher one where it is zero."""
    found = quantile(counts, unit, level) / normal_quantile(level)
    for higher in HIGHER_LEVELS:
        found = np.where(found > 0.0, found, quantile(counts, unit, higher) / normal_quantile(higher))
    # Nothing above the first bin: the unit was far too large, and the next round counts in a smaller one.
    return np.where(found > 0.0, found, EDGES[0] * unit)


def fit_noise(counts: FloatArray, unit: FloatArray, spread: FloatArray) -> FloatArray:
    """The noise per feature that the weights of the fit are in units of."""
    return np.maximum(deviation(counts, unit, FIT_LEVEL), LEAST_OF_SPREAD * spread)

"""What residuals look like that are no outliers: a scale per feature, and the cut beyond which entries are flagged.

The scale is that of the 85 % quantile under normal noise. Real residuals have heavier tails: the scale is raised until
hardly any of the feature's entries lies in the shoulder from 3 to 5 scales, where a normal tail has run out and
scattered gross errors are rare. It is raised at most to half of the feature's own spread. An entry's p-value is that of
z = R/scale under the normal distribution; the cut is Benjamini and Hochberg's over all entries of all sites.
"""

from __future__ import annotations

import numpy as np
import scipy

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.noise_scale import FLAG_LEVEL, deviation
from dcfpca.rpca.refinement.size_histogram import RESIDUAL_BINS, Bins, count_above, quantile

SHOULDER = (3.0, 5.0)  # in scales
CALM = 0.004  # of a feature's entries may lie in its shoulder; normal noise has 0.0027 there
MOST_OF_SPREAD = 0.5
STEPS = 24
DOMINATED = 0.8  # of a feature's entries have one value
CUTS = np.linspace(2.0, 12.0, 401)
DISTANCE_LEVELS = ((0.85, 0.85), (0.98, 0.99))  # of the counts, and of χ²: coefficients of real tables have heavy tails
DISTANCE_BINS = Bins(octaves=10, per_octave=4)


def null_scale(counts: FloatArray, unit: FloatArray, spread: FloatArray, one_value: FloatArray) -> FloatArray:
    """Each feature's scale, from the counts of its residuals' sizes.

    Of a feature that is one value nearly throughout (the share `one_value` of its entries), the residuals say only how
    well that value is fitted; its scale is that of its other values, which are rare but no errors by that.
    """
    core = deviation(counts, unit, FLAG_LEVEL, RESIDUAL_BINS)
    largest = np.sqrt(core**2 + (MOST_OF_SPREAD * spread) ** 2)
    entries = np.maximum(counts.sum(axis=1), 1e-300)
    scale, calm = largest.copy(), np.zeros(core.size, dtype=bool)
    for share in np.linspace(0.0, 1.0, STEPS):
        tried = core * (largest / core) ** share
        inner, outer = (count_above(counts, unit, bound * tried, RESIDUAL_BINS) for bound in SHOULDER)
        now = (inner - outer <= CALM * entries) & ~calm
        scale, calm = np.where(now, tried, scale), calm | now
    return np.where(one_value > DOMINATED, np.maximum(scale, spread), scale)


def flag_cut(counts: FloatArray, unit: FloatArray, scale: FloatArray, rate: float) -> float:
    """The |z| beyond which entries are flagged so that the false discovery rate is this.

    Where no entry is significant, it is the |z| at which a single one would be, so that new columns are still judged.
    """
    entries = float(counts.sum())
    for cut in CUTS:
        flagged = float(count_above(counts, unit, cut * scale, RESIDUAL_BINS).sum())
        if flagged > 0.5 / max(entries, 1.0) and two_sided(np.array([cut]))[0] * entries <= rate * flagged:
            return float(cut)
    return float(-scipy.special.ndtri(0.5 * rate / max(entries, 1.0)))


def two_sided(z: FloatArray) -> FloatArray:
    """The probability of a normal deviate at least as large as |z|."""
    return np.asarray(2.0 * scipy.special.ndtr(-np.abs(z)))


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


def distance_p_value(distance: FloatArray, rank: int, scale: float) -> FloatArray:
    """The probability of a T² at least as large."""
    if rank == 0:
        return np.ones_like(distance)
    return np.asarray(scipy.special.chdtrc(rank, distance / scale))


def column_p_value(z: FloatArray) -> FloatArray:
    """Simes' combination of the p-values of each column's entries (NaN: unobserved); 1 for a column without any."""
    p = np.sort(np.where(np.isnan(z), 2.0, two_sided(z)), axis=0)
    seen = np.maximum(np.count_nonzero(~np.isnan(z), axis=0), 1)
    place = np.arange(1, z.shape[0] + 1)[:, None]
    combined = np.where(p <= 1.0, p * seen / place, 1.0)
    return np.asarray(np.minimum(combined.min(axis=0, initial=1.0), 1.0))

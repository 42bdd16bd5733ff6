"""Estimates how large the deviations of ordinary entries are from the deviations of all entries.

Deviations are put in units of the feature and side (above or below what is expected) that they belong to. Their sizes,
pooled over features, are a mixture: Student's t for the ordinary ones, with degrees of freedom estimated from their
middle, and a broad part for the wrong ones. An entry is flagged where the ordinary part makes up less than a given
share of the mixture. No normal probability is claimed far out, where no data supports one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.noise_scale import Bins, normal_quantile, quantile
from dcfpca.rpca.small_cells import Merging

SIZE_BINS = Bins(octaves=7, per_octave=6)
LEVELS, LEVEL_OF_RARE = (0.8, 0.9), 0.9
EQUIVALENT = 10.0  # entries that speak for the unit 1 before any is counted
FEWEST = 8.0  # entries on a side whose own unit is estimated
CENTRAL = 5.0  # sizes beyond are counted, but not told apart: errors lie there
BROAD = (2.0, 100.0)  # sizes of wrong entries, evenly over the logarithm
LEAST_CUT, MOST_CUT = 3.5, 40.0
CUTS = np.geomspace(LEAST_CUT, MOST_CUT, 500)
EFFECTIVE = 20_000.0  # entries that the mixture is fitted to at most: it is a model, and entries of a sample depend
FREEDOM = 1.5 + np.geomspace(0.5, 500.0, 31)
TYPICAL_FREEDOM, FREEDOM_SPREAD = 30.0, 1.0  # of the prior, over the logarithm
UNIT = np.linspace(0.7, 1.3, 31)
WRONG = np.concatenate([[1e-7], np.geomspace(1e-5, 0.4, 40)])
TYPICAL_WRONG, WRONG_SPREAD = -4.0, 3.0  # of the prior, over the log-odds


def units_by_side(
    counts: FloatArray,
    few: NDArray[np.bool_],
    furthest: FloatArray,
    levels: Callable[[float], FloatArray | float] = float,
) -> FloatArray:
    """The unit (m) of one side's sizes, from their counts; none is larger than `furthest`.

    In a feature of few values (`few`) most sizes only show how well its commonest value is expected; the unit is that
    of its other values, which are rare without being errors. `levels` says which share of the counts lies below the
    quantile at a level, where they were merged.
    """
    entries, one, lower = counts.sum(axis=1), np.ones(len(counts)), np.append(0.0, SIZE_BINS.edges)
    quantiles = [quantile(counts, one, levels(level), SIZE_BINS) / normal_quantile(level) for level in LEVELS]
    unit = np.maximum(np.max(quantiles, axis=0), 2.0**-SIZE_BINS.octaves) ** (entries / (entries + EQUIVALENT))
    rarer = np.where((lower > 1.0 - 1e-9) & (lower < furthest[:, None]), counts, 0.0)
    rare = quantile(rarer, one, LEVEL_OF_RARE, SIZE_BINS) / normal_quantile(LEVEL_OF_RARE)
    return np.where(few, np.maximum(rare, 1.0), np.where(entries < FEWEST, 1.0, unit))


def levels_of_side(share: FloatArray, merging: Merging) -> Callable[[float], FloatArray]:
    """The levels of merged counts of the side that has this share (m) of each feature's entries."""
    share = np.maximum(share, np.finfo(np.float64).tiny)
    return lambda level: np.clip(1.0 - merging.levels(share * (1.0 - level)) / share, 0.0, 1.0)


def pooled(counts: FloatArray, units: FloatArray) -> FloatArray:
    """Counts of all rows together, each in its own unit; sizes between two bins are divided between them."""
    shift = np.log2(units) * SIZE_BINS.per_octave
    whole = np.floor(shift).astype(np.intp)
    share, total = shift - whole, np.zeros(SIZE_BINS.count)
    for offset, part in ((whole, 1.0 - share), (whole + 1, share)):
        place = np.clip(np.arange(SIZE_BINS.count) - offset[:, None], 0, SIZE_BINS.count - 1)
        np.add.at(total, place, counts * part[:, None])
    return total


@dataclass(frozen=True, slots=True)
class Null:
    """The mixture, and the size beyond which entries are flagged."""

    freedom: float
    unit: float
    wrong: float  # the share of entries that are wrong
    cut: float

    def tail(self, size: FloatArray) -> FloatArray:
        """The probability of an ordinary entry at least this far off."""
        return np.asarray(2.0 * scipy.special.stdtr(self.freedom, -np.abs(size) / self.unit))


def fit_null(counts: FloatArray, local: float) -> Null:
    """The mixture by these pooled counts; where less than the share `local` of it is ordinary, entries are flagged.

    The cut is that of the mixture averaged over everything that the counts leave possible. So it moves little with
    them, and a tail that might be heavier than the most probable one counts.
    """
    likely = np.tensordot(_grid(), _central(counts), axes=(3, 0))
    likely -= 0.5 * ((np.log(FREEDOM - 1.5) - np.log(TYPICAL_FREEDOM)) / FREEDOM_SPREAD)[:, None, None] ** 2
    odds = np.log(WRONG / (1.0 - WRONG))
    likely -= 0.5 * ((odds - TYPICAL_WRONG) / WRONG_SPREAD) ** 2
    weight = np.exp(likely - likely.max())
    weight /= weight.sum()
    freedom = float(np.exp(weight.sum(axis=(1, 2)) @ np.log(FREEDOM)))
    unit, wrong = float(weight.sum(axis=(0, 2)) @ UNIT), float(weight.sum(axis=(0, 1)) @ WRONG)
    return Null(freedom, unit, wrong, _cut(weight, wrong, local))


def evidence_against(null: Null, counts: FloatArray) -> float:
    """The logarithm of how much likelier the best mixture makes these counts than this null does."""
    central = _central(counts)
    shares = _log_shares(np.array([null.freedom]), np.array([null.unit]), np.array([null.wrong]))
    return float(np.tensordot(_grid(), central, axes=(3, 0)).max() - shares[0, 0, 0] @ central)


def _central(counts: FloatArray) -> FloatArray:
    """Counts of the central bins and of all beyond, as many as the mixture is fitted to."""
    last = int(np.searchsorted(SIZE_BINS.edges, CENTRAL))
    merged = np.append(counts[:last], counts[last:].sum())
    return np.asarray(merged * min(1.0, EFFECTIVE / max(float(merged.sum()), 1.0)))


def _cut(weight: FloatArray, wrong: float, local: float) -> float:
    """The least size from which on the ordinary part of the averaged density is below `local`."""
    ordinary = np.tensordot(weight @ (1.0 - WRONG), _densities(), axes=2)
    broad = wrong / (CUTS * np.log(BROAD[1] / BROAD[0]))
    low = np.flatnonzero(ordinary <= local * (ordinary + broad))
    return float(CUTS[low[0]]) if low.size else MOST_CUT


@lru_cache(maxsize=1)
def _densities() -> FloatArray:
    """The densities of ordinary entries at CUTS, for every freedom and unit."""
    freedom, t = FREEDOM[:, None, None], CUTS / UNIT[:, None]
    peak = scipy.special.gammaln(0.5 * (freedom + 1.0)) - scipy.special.gammaln(0.5 * freedom)
    shape = -0.5 * np.log(np.pi * freedom) - 0.5 * (freedom + 1.0) * np.log1p(t**2 / freedom)
    return np.asarray(2.0 * np.exp(peak + shape) / UNIT[:, None])


@lru_cache(maxsize=1)
def _grid() -> FloatArray:
    return _log_shares(FREEDOM, UNIT, WRONG)


def _log_shares(freedom: FloatArray, unit: FloatArray, wrong: FloatArray) -> FloatArray:
    """Logarithms of the shares of the central bins and of all beyond, for every freedom, unit and share of errors."""
    upper = np.concatenate([[0.0], SIZE_BINS.edges[SIZE_BINS.edges < CENTRAL], [np.inf]])
    scaled = upper / unit[:, None]
    inside = 1.0 - 2.0 * scipy.special.stdtr(freedom[:, None, None], -scaled)
    ordinary = np.diff(inside, axis=2)
    with np.errstate(divide="ignore"):
        place = np.log(upper / BROAD[0]) / np.log(BROAD[1] / BROAD[0])
    broad = np.diff(np.clip(place, 0.0, 1.0))
    shares = (1.0 - wrong)[:, None] * ordinary[:, :, None, :] + wrong[:, None] * broad
    return np.asarray(np.log(np.maximum(shares, 1e-15)))

"""The own view of a site, which decides what is unusual at this site.

It has the form of the shared plan, so that both judge by the same rules. Margins, covariance, units and null are the
shared ones, except where the site's own columns clearly contradict them. Pooled figures rest on more columns, and a
site that trusted its own chance variation would flag its own samples because of it. Nothing of it leaves the site.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import TWO_VALUES, Calibration
from dcfpca.rpca.calibration.empirical_null import SIZE_BINS, Null, evidence_against, fit_null, pooled
from dcfpca.rpca.calibration.normal_scores import LEVELS, SCORES
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Columns, FloatArray
from dcfpca.rpca.own_view.own_model import COLUMNS_EACH, SURE, model_alone, own_model
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.refinement.hidden_entries import HiddenColumns
from dcfpca.rpca.refinement.noise_scale import count_sizes, normal_quantile
from dcfpca.rpca.refinement.scoring import expect_entries
from dcfpca.rpca.stage import Snapshot

SAMPLE = 2000  # columns that tell a site's own figures
SELDOM = 0.1  # of a feature's values at the site, by its two most frequent: it has many, and is no scale of grades
MOSTLY_ONE = 0.5  # of a feature's values at the site: the deviation of its own is zero
INNER = (LEVELS > 0.1) & (LEVELS < 0.9)  # quantiles that a pattern in a few of the columns does not move
KNOWN: FloatArray = INNER * np.exp(-(SCORES**2)) / (LEVELS * (1.0 - LEVELS))  # how well normal samples tell a quantile
KNOWN /= KNOWN.sum()
WORSE = 2.0  # n times the mean square by which quantiles are nearer to a line: of one feature in 1000 by chance
TRUSTED = 1.0  # … by which all bent features together are nearer to their shared shapes: else none is believed
UNIT_LEVEL = 0.8
DIFFERENT = float(np.log(1.25))  # of a unit's logarithm: less is not worth an own one
ONE_SIDED = float(np.log(2.0))  # of the logarithm of one side's unit
SAME = 1e-3  # of a ratio's logarithm: equal sides
FEWEST_ENTRIES = 10
PRIOR_ENTRIES = 500.0  # that speak for the shared null
EVIDENCE = 8.0  # against the shared null, as a logarithm: by chance 1 in 1000 sites has as much
NULL_FIGURES = ("freedom", "unit", "wrong", "cut")
LEAST_POOLED = 0.2  # of the features have more than few values: else all tell the null
TENSOR, SCALARS = "own/tensor", "own/scalars"  # of a site's own arrays


def sample_of(hidden: HiddenColumns) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The columns that tell a site's own figures, and which of their entries a fit must not know."""
    M = columns_sample(hidden.columns)
    mask = np.concatenate([hidden.hidden(*cut)[:, take] for cut, take in _taken(hidden)], axis=1)
    return M, mask & ~np.isnan(M)


def columns_sample(columns: Columns) -> FloatArray:
    """All columns, or evenly spaced ones where they are many."""
    # Copies: a view would keep its whole block in memory, and all views together the whole matrix.
    return np.concatenate([np.array(columns.read(*cut)[:, take]) for cut, take in _taken(columns)], axis=1)


def _taken(columns: Columns) -> list[tuple[tuple[int, int], slice]]:
    """Blocks of columns, and which of each are in the sample."""
    every = -(-columns.shape[1] // SAMPLE)
    return [(cut, slice(-cut[0] % every, None, every)) for cut in blocks(columns)]


def own_plan(plan: ClosingPlan, M: FloatArray, local: float) -> ClosingPlan:
    """The plan by which a site with these columns judges; `local` is the share of ordinary entries at the cut."""
    known = plan.calibration
    assert known is not None  # of a run that has its null
    varied = known.of_few_values & many_values(M)
    few = (known.of_few_values & ~varied) | few_values(M)
    known = replace(known, reach=np.where(varied, 1.0, known.reach), few=few.astype(np.float64))
    known = replace(known, knots=own_knots(known, M, few, varied))
    scores = known.shape.forward(M)
    # Where other sites give a feature only a few values, the shared model does not relate it to any other.
    model = model_alone(scores, few) if varied.any() else own_model(known.model, scores)
    found = replace(known, mean=model.centre, factor=model.factor, own=model.own)
    z = expect_entries(replace(plan, calibration=found), M, M).z
    found = own_null(found, z, local, _frequent(M)[1] < SELDOM)
    return replace(plan, calibration=found, cut=found.cut, taken=0.0)


def own_null(known: Calibration, z: FloatArray, local: float, continuous: NDArray[np.bool_]) -> Calibration:
    """Units and null from these deviations, with the shared ones as prior; `continuous` features are without ties."""
    one, few = np.ones(len(z)), known.of_few_values
    graded = few | known.shape.graded()
    sides = [count_sizes(np.where(here, np.abs(z), np.nan), one, SIZE_BINS) for here in (z > 0.0, z <= 0.0)]
    units = _own_units(z, _own_skew(z, known.above, known.below, graded | ~continuous), graded)
    together = ~few if np.mean(~few) >= LEAST_POOLED else np.ones_like(few)
    counts = sum(pooled(side[together], unit[together]) for side, unit in zip(sides, units, strict=True))
    null = fit_null(np.asarray(counts) + PRIOR_ENTRIES * _shares(known.null), local)
    own = float(beyond_chance(evidence_against(known.null, np.asarray(counts)), EVIDENCE))
    blend = {name: (1.0 - own) * getattr(known, name) + own * getattr(null, name) for name in NULL_FIGURES}
    return replace(known, above=units[0], below=units[1], **blend)


def own_knots(known: Calibration, M: FloatArray, few: NDArray[np.bool_], varied: NDArray[np.bool_]) -> FloatArray:
    """The map to normal scores of a site's values: the shared one, or centre and scale alone. A tail that others have,
    or pretend to have, would compress gross errors here.

    Where the site's features together support their shared shapes, a shape stands until its own values clearly
    contradict it: own marginals of some features break their relations to the others. Where they do not, a shape needs
    evidence of its own. Of `varied` features, to which others give few values, the shared one knows nothing."""
    knots, bent = known.knots.copy(), np.flatnonzero(~few & ~varied & ~known.shape.graded() & ~known.shape.straight())
    lines = {row: _line(known.knots[row], M[row, ~np.isnan(M[row])]) for row in bent}
    trust = float(beyond_chance(-sum(worse for _, worse in lines.values()), TRUSTED))
    for row, (straight, worse) in lines.items():
        own = trust * beyond_chance(worse, WORSE) + (1.0 - trust) * (1.0 - beyond_chance(-worse, WORSE))
        knots[row] = (1.0 - own) * known.knots[row] + own * straight
    for row in np.flatnonzero(varied & ~few):
        knots[row] = _line(known.knots[row], M[row, ~np.isnan(M[row])])[0]
    return knots


def _line(shared: FloatArray, values: FloatArray) -> tuple[FloatArray, float]:
    """Straight knots of these values, and by how much they lie nearer to those than to the shared ones, moved and
    stretched: n times the mean square, in spreads."""
    if values.size < LEVELS.size:
        return shared, 0.0
    found = np.quantile(values, LEVELS)
    straight, bent = (_fitted(shape, found) for shape in (SCORES, shared))
    slope = max(float(straight[-1] - straight[0]) / (SCORES[-1] - SCORES[0]), 1e-150)
    worse = float(KNOWN @ (found - bent) ** 2 - KNOWN @ (found - straight) ** 2)
    return straight, values.size * worse / slope**2


def few_values(M: FloatArray) -> NDArray[np.bool_]:
    """Which features have few values at this site."""
    one, two = _frequent(M)
    return np.asarray((one > MOSTLY_ONE) | (two > TWO_VALUES))


def many_values(M: FloatArray) -> NDArray[np.bool_]:
    """Which features clearly have many values at this site; none where it has too few columns to relate features."""
    enough = np.count_nonzero(~np.isnan(M), axis=1) >= COLUMNS_EACH * len(M)
    return np.asarray(enough & (_frequent(M)[1] < SELDOM))


def _frequent(M: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The shares of a feature's most frequent value, and of its two most frequent ones."""
    shares = np.zeros((2, len(M)))
    for row, values in enumerate(M):
        counts = np.sort(np.unique(values[~np.isnan(values)], return_counts=True)[1])[::-1]
        shares[:, row] = counts[:1].sum(), counts[:2].sum()
        shares[:, row] /= max(counts.sum(), 1)
    return shares[0], shares[1]


def kept_arrays(mine: ClosingPlan, ratio: float) -> dict[str, NDArray[np.generic]]:
    """The own view, and how much worse the shared model predicts here, as arrays that a site keeps until its result is
    formed."""
    assert mine.calibration is not None
    scalars = np.append(mine.calibration.scalars(), ratio)
    return {TENSOR: mine.calibration.tensor(), SCALARS: scalars}


def kept_view(plan: ClosingPlan, kept: Snapshot) -> ClosingPlan | None:
    """The own view that a site kept; None if it formed none."""
    if TENSOR not in kept or plan.calibration is None:
        return None
    tensor, scalars = (np.asarray(kept[name], dtype=np.float64) for name in (TENSOR, SCALARS))
    found = Calibration.of(tensor, scalars[:-1])
    # Its model is of no samples that could be left out of it.
    return replace(plan, calibration=found, cut=found.cut, taken=0.0, made_by=None)


def kept_ratio(kept: Snapshot) -> float:
    """How many times worse the shared model predicts hidden entries of this site than one of its own; 0: unknown."""
    return float(np.asarray(kept[SCALARS], dtype=np.float64)[-1])


def _fitted(shape: FloatArray, found: FloatArray) -> FloatArray:
    """The shape moved and stretched to the quantiles."""
    off = shape - KNOWN @ shape
    slope = max(float((KNOWN * off) @ found) / max(float((KNOWN * off) @ off), 1e-300), 0.0)
    return np.asarray(KNOWN @ found + slope * off)


def _own_units(z: FloatArray, shared: list[FloatArray], few: NDArray[np.bool_]) -> list[FloatArray]:
    """The shared units of both sides, multiplied by what the site's deviations clearly differ by; and by more on a side
    that is far from what is usual here even then, as others may have pretended."""
    above, below = (np.maximum(side, np.finfo(np.float64).tiny)[:, None] for side in shared)
    sizes = np.abs(z) / np.where(z > 0.0, above, below)
    usual, units = _own_factor(sizes, DIFFERENT, few), []
    for unit, here in zip(shared, (z > 0.0, z <= 0.0), strict=True):
        further = _own_factor(np.where(here, sizes / usual[:, None], np.nan), ONE_SIDED, few)
        units.append(unit * usual * further)
    return units


def _own_skew(z: FloatArray, above: FloatArray, below: FloatArray, few: NDArray[np.bool_]) -> list[FloatArray]:
    """The shared units, made equal as far as their size is clearly not that of the site, and the site's own sides are
    nearer to equal than to them: what is not true here in size says nothing of the two sides either."""
    low = np.finfo(np.float64).tiny
    middle, skew = (
        np.sqrt(np.maximum(above * below, low)),
        0.5 * np.log(np.maximum(above, low) / np.maximum(below, low)),
    )
    other = np.abs(np.log(_own_factor(np.abs(z) / middle[:, None], DIFFERENT, few))) > 0.0
    sides = [_own_size(np.where(here, np.abs(z), np.nan), few) for here in (z > 0.0, z <= 0.0)]
    ratio = sides[0] - sides[1]
    false = other * beyond_chance(np.abs(ratio - 2.0 * skew), np.maximum(np.abs(ratio), SAME))
    return [middle * np.exp(sign * (1.0 - false) * skew) for sign in (1.0, -1.0)]


def _own_factor(sizes: FloatArray, least: float, few: NDArray[np.bool_]) -> FloatArray:
    """The factor by which each row of sizes is larger than normal ones, as far as it exceeds chance and `least`."""
    entries, off = np.count_nonzero(~np.isnan(sizes), axis=1), _own_size(sizes, few)
    chance = np.maximum(least, SURE / np.sqrt(np.maximum(entries, 1)))
    return np.asarray(np.exp(off * beyond_chance(np.abs(off), chance)))


def _own_size(sizes: FloatArray, few: NDArray[np.bool_]) -> FloatArray:
    """The logarithm of how much larger each row of sizes is than normal ones; 0 where there are too few."""
    entries = np.count_nonzero(~np.isnan(sizes), axis=1)
    known = np.where((few | (entries < FEWEST_ENTRIES))[:, None], normal_quantile(UNIT_LEVEL), sizes)
    found = np.nanquantile(known, UNIT_LEVEL, axis=1) / normal_quantile(UNIT_LEVEL)
    return np.asarray(np.log(np.maximum(found, 2.0**-SIZE_BINS.octaves)))


def beyond_chance(found: FloatArray | float, chance: FloatArray | float) -> FloatArray:
    """The share of a difference that counts as the site's own: nothing up to what chance explains, everything from
    twice that on, and linearly in between."""
    return np.asarray(np.clip(np.minimum(found, 2.0 * np.asarray(chance)) / chance - 1.0, 0.0, 1.0))


def _shares(null: Null) -> FloatArray:
    """The shares of the bins of sizes among ordinary entries."""
    return np.diff(1.0 - null.tail(np.concatenate([[0.0], SIZE_BINS.edges, [np.inf]])))

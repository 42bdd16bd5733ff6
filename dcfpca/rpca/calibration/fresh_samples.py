"""How odd samples look that had no part in a run, from its own fit: what was estimated is less sure for them.

The model is nearer to the samples that it was made from than to others. By how much follows from a parametric
bootstrap: as many samples as the run had are drawn from its fit, what samples are judged by is estimated from them
anew, and further samples, drawn alike, are held against that. It needs no more than the run's last broadcast.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.calibration.expectation import (
    ScoreModel,
    chunks,
    correlation_of,
    expect,
    model_from_covariance,
    model_from_moments,
    moment_sums,
    wrapped_sums,
)
from dcfpca.rpca.calibration.normal_scores import SHAPE_BINS, NormalScores, shape_from_counts
from dcfpca.rpca.calibration.sample_test import SampleNull, oddness
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.refinement.noise_scale import FIT_LEVEL, LEAST_FREEDOM, count_sizes, normal_quantile
from dcfpca.rpca.round_limits import COVARIANCE_ROUNDS

SURE = 100.0  # samples a feature: with more, what was estimated adds less than a hundredth to distances
DRAWN, LEAST_TIMES, MOST_TIMES = 500, 2, 20  # samples drawn as the run's, in so many bootstraps
FRESH = 100  # further samples of each
SEED = 1


@lru_cache(maxsize=1)
def fresh_null(plan: ClosingPlan) -> SampleNull:
    """The null of samples that had no part in the run: shifted and widened by as much as in the bootstrap."""
    rows, columns, own = plan.U.shape[0], round(plan.columns), plan.sample_null
    if columns >= SURE * rows:
        return own
    rng = np.random.default_rng(SEED)
    times = int(np.clip(DRAWN // max(columns, 1), LEAST_TIMES, MOST_TIMES))
    pairs = [_bootstrap(plan, columns, rng) for _ in range(times)]
    fitted, fresh = (np.concatenate(part) for part in zip(*pairs, strict=True))
    shift = float(np.median(fresh) - np.median(fitted))
    # Of a sample more, the location that so many samples tell is uncertain, too, and the scale by as many freedoms.
    widened = max(float(fresh.std() / fitted.std()), 1.0) * np.sqrt(1.0 + 1.0 / columns)
    return SampleNull(own.location + shift, own.scale * widened, min(own.freedom, max(columns - 1.0, 1.0)))


def fresh_distance_p_value(distance: FloatArray, rank: int, columns: float) -> FloatArray:
    """The probability that T² of a sample that had no part in so many is at least as large: Hotelling's F."""
    if rank == 0:
        return np.ones_like(distance)
    rest = max(columns - rank, 1.0)
    unit = rank * (columns + 1.0) * (columns - 1.0) / (columns * rest)
    return np.asarray(scipy.special.fdtrc(rank, rest, distance / unit))


def _bootstrap(plan: ClosingPlan, columns: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """How odd samples are that the model is made from, and others drawn alike."""
    drawn = [_drawn(*_parts(plan), count, rng) for count in (columns, FRESH)]
    found = _estimated(plan, drawn[0])
    return _oddness(*found, drawn[0]), _oddness(*found, drawn[1])


def _parts(plan: ClosingPlan) -> tuple[NormalScores | None, ScoreModel]:
    """What samples are judged by: the map to scores, where there is one, and their model."""
    if plan.calibration is not None and plan.calibration.whole:
        return plan.calibration.shape, plan.calibration.model
    kept = plan.subspace
    return None, ScoreModel(kept.centre, kept.U * np.sqrt(kept.variance), plan.noise**2, np.zeros(len(kept.U), bool))


def _drawn(shape: NormalScores | None, model: ScoreModel, count: int, rng: np.random.Generator) -> FloatArray:
    """Samples of this model, in the units of the plan."""
    rows, width = model.factor.shape
    noise = np.sqrt(model.own)[:, None] * rng.normal(size=(rows, count))
    scores = model.centre[:, None] + model.factor @ rng.normal(size=(width, count)) + noise
    return scores if shape is None else shape.backward(scores)


def _estimated(plan: ClosingPlan, M: FloatArray) -> tuple[NormalScores | None, ScoreModel]:
    """The same, estimated from these samples as the run does."""
    shape, model = _parts(plan)
    if shape is None:
        return None, _directions(M, plan.rank)
    shape = _shape(M, model.few)
    scores, correlation = shape.forward(M), correlation_of(wrapped_sums(shape.forward(M)))
    model = model_from_covariance(np.zeros(len(M)), correlation, M.shape[1], model.few, plan.rank)
    for _ in range(COVARIANCE_ROUNDS - 1):
        sums = [moment_sums(model, scores[:, cut]) for cut in chunks(len(M), model.factor.shape[1], M.shape[1])]
        count, total, squares = (sum(parts) for parts in zip(*sums, strict=True))
        model = model_from_moments(model, count, total, squares, plan.rank)
    return shape, model


def _shape(M: FloatArray, few: NDArray[np.bool_]) -> NormalScores:
    """The map to scores that these samples tell."""
    median = np.median(M, axis=1)
    off = M - median[:, None]
    spread = np.median(np.abs(off), axis=1) / normal_quantile(0.5)
    sides = (np.where(side, np.abs(off), np.nan) for side in (off > 0.0, off <= 0.0))
    above, below = (count_sizes(side, spread, SHAPE_BINS) for side in sides)
    return shape_from_counts(above, below, median, spread, few)


def _directions(M: FloatArray, rank: int) -> ScoreModel:
    """Leading directions, and what is left of each feature by the median size of its residuals."""
    centre, columns = M.mean(axis=1), M.shape[1]
    left, values, right = np.linalg.svd(M - centre[:, None], full_matrices=False)
    residual = M - centre[:, None] - (left[:, :rank] * values[:rank]) @ right[:rank]
    noise = np.median(np.abs(residual), axis=1) / normal_quantile(FIT_LEVEL)
    noise /= np.maximum(1.0 - np.sum(left[:, :rank] ** 2, axis=1), LEAST_FREEDOM)
    factor = left[:, :rank] * (values[:rank] / np.sqrt(columns))
    return ScoreModel(centre, factor, noise**2, np.zeros(len(M), bool))


def _oddness(shape: NormalScores | None, model: ScoreModel, M: FloatArray) -> FloatArray:
    """Of these samples by that."""
    scores = M if shape is None else shape.forward(M)
    parts = [scores[:, cut] for cut in chunks(len(M), model.factor.shape[1], M.shape[1])]
    return np.concatenate([oddness(model, part, expect(model, part)) for part in parts])

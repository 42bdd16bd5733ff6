"""A site's own model of its normal scores: the shared one, except where the site's own columns clearly differ from it.

The covariance of a site's own columns is estimated as the shared one is, by EM with distrusted entries as expected,
over the calmest of them. Where the shared covariance has clearly more variance along a direction than the site's
columns have, the site's variance replaces it. So nobody can hide a pattern from a site by sending a direction along
which its columns do not move. A direction along which only the site's columns move keeps its variance, although the
shared model does not have it. Elsewhere the shared covariance stays, because it rests on more columns.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import ONE_VALUE
from dcfpca.rpca.calibration.expectation import (
    FAR,
    ScoreModel,
    correlation_of,
    expect,
    model_from_covariance,
    model_from_moments,
    moment_sums,
    wrapped_sums,
)
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.thresholds import NORMAL_MEDIAN

CALMEST = 0.85  # of a site's columns: a pattern that only the remaining columns have is not learned
STEPS = 3
SURE = 4.0  # standard errors by which a figure of the site is off before it is taken for its own
EFFICIENCY = 0.6  # of a variance from the calmest columns
FEWEST = 5  # columns with an entry of the feature
COLUMNS_EACH = 3  # columns of the site for every direction in which its covariance is its own
MUCH = 4.0  # by which own variance exceeds the shared one beyond what chance makes: errors widen it, too
FEW_WIDENED = 0.25  # of the directions, by errors; none of twice as many are
MOST_SIZE = 25.0  # of a squared deviation, where columns are compared
ROUNDING = 1e-9  # scores
LEAST = 1e-8  # of the largest eigenvalue


def own_model(shared: ScoreModel, scores: FloatArray) -> ScoreModel:
    """The model of a site with these scores (m × n, NaN: unobserved)."""
    directions = min(len(scores), scores.shape[1] // COLUMNS_EACH)
    offset = _own_offset(shared, scores)
    if directions == 0:
        return replace(shared, centre=shared.centre + offset)
    alone = model_alone(scores, shared.few)
    # All centres or none: chance moves the site's own centres along the directions, and replacing only some would break
    # relations.
    centre = alone.centre if offset.any() and directions == len(scores) else shared.centre + offset
    covariance = _adapted(covariance_of(alone), covariance_of(shared), directions, scores.shape[1])
    return _from_covariance(centre, covariance, shared.few)


def _own_offset(shared: ScoreModel, scores: FloatArray) -> FloatArray:
    """How far every feature lies from what the others predict, where it clearly does at this site; else zero."""
    off, deviation = _score_margins(scores - expect(shared, scores).score, shared.few)
    seen = np.count_nonzero(~np.isnan(scores), axis=1)
    clear = (seen >= FEWEST) & (np.abs(off) * np.sqrt(np.maximum(seen, 1)) > SURE * deviation)
    return np.where(clear, off, 0.0)


def model_alone(scores: FloatArray, few: NDArray[np.bool_]) -> ScoreModel:
    """The model from these columns alone; it treats features of few values as independent."""
    middle, deviation = _score_margins(scores, few)
    X = np.where(few[:, None], np.nan, (scores - middle[:, None]) / deviation[:, None])
    start = correlation_of(wrapped_sums(X))
    model = model_from_covariance(np.zeros(len(X)), start, float(X.shape[1]), few)
    for _ in range(STEPS):
        model = model_from_moments(model, *moment_sums(model, X[:, _calmest(model, X)]))
    centre = middle + deviation * model.centre
    return ScoreModel(centre, deviation[:, None] * model.factor, deviation**2 * model.own, few)


def margins(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Median and normal deviation of every feature; 0 and 1 where there is none."""
    known = np.where(np.isnan(values).all(axis=1, keepdims=True), 0.0, values)
    middle = np.nanmedian(known, axis=1)
    deviation = NORMAL_MEDIAN * np.nanmedian(np.abs(known - middle[:, None]), axis=1)
    return middle, np.where(deviation > 0.0, deviation, 1.0)


def _score_margins(scores: FloatArray, few: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """`margins` of scores, and 1 for a deviation that is only rounding. Mean and deviation of a coin: its median is one
    of its sides. A feature that nearly always has one value is no coin."""
    middle, deviation = margins(scores)
    same = np.mean(np.abs(scores - middle[:, None]) <= ROUNDING, axis=1)
    for row in np.flatnonzero(few & (same <= ONE_VALUE) & ~np.isnan(scores).all(axis=1)):
        near = np.clip(scores[row], -FAR, FAR)
        middle[row], deviation[row] = np.nanmean(near), np.nanstd(near)
    return middle, np.where(deviation > ROUNDING, deviation, 1.0)


def covariance_of(model: ScoreModel) -> FloatArray:
    """F Fᵀ + diag(ψ)."""
    return np.asarray(model.factor @ model.factor.T + np.diag(model.own))


def _calmest(model: ScoreModel, X: FloatArray) -> NDArray[np.intp]:
    """The places of the most coherent columns: their entries agree best with one another."""
    sizes = np.minimum(expect(model, X).z(X) ** 2, MOST_SIZE)
    size = np.nanmean(np.where(np.isnan(sizes).all(axis=0), 0.0, sizes), axis=0)
    return np.sort(np.argsort(size, kind="stable")[: int(np.ceil(CALMEST * X.shape[1]))])


def _adapted(own: FloatArray, shared: FloatArray, directions: int, columns: int) -> FloatArray:
    """The shared covariance with the site's own variance along those of its leading directions that clearly differ.

    First along its own eigenvectors, where chance is small; then along any of their combinations, where ratios of
    variances are as far from 1 by chance as the eigenvalues of a covariance of this many columns.
    """
    values, vectors = np.linalg.eigh(shared)
    rest, Q = vectors[:, :-directions], vectors[:, -directions:]
    C, strengths = Q.T @ own @ Q, np.maximum(values[-directions:], LEAST * values[-1])
    along = np.diag(C) / strengths
    unused = np.log(along) < -SURE * np.sqrt(2.0 / (EFFICIENCY * columns))
    root = _root(C)
    back = np.linalg.inv(root)
    ratio, W = np.linalg.eigh((back * np.where(unused, along, 1.0) * strengths) @ back.T)
    edge = np.sqrt(directions / (CALMEST * columns))
    low = (1.0 + edge) ** -2.0
    # Errors widen a few directions. Where most are wider, others pretend to have less noise than there is here.
    errors = np.clip(2.0 - np.mean(ratio < low / MUCH) / FEW_WIDENED, 0.0, 1.0)
    usual = (ratio < (1.0 - edge) ** -2.0) & (ratio > low / MUCH**errors)
    between = (root @ W * np.where(usual, ratio, 1.0)) @ (root @ W).T
    return np.asarray((rest * values[:-directions]) @ rest.T + Q @ between @ Q.T)


def _root(covariance: FloatArray) -> FloatArray:
    """R with R Rᵀ = the covariance, invertible."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, LEAST * values[-1])))


def _from_covariance(centre: FloatArray, covariance: FloatArray, few: NDArray[np.bool_]) -> ScoreModel:
    """F Fᵀ + ψ as given; what is expected does not depend on how a covariance is parted into the two."""
    values, vectors = np.linalg.eigh(covariance)
    own = 0.5 * max(float(values[0]), LEAST * float(values[-1]))
    return ScoreModel(centre, vectors * np.sqrt(np.maximum(values - own, 0.0)), np.full(len(centre), own), few)

"""Pooled quantiles map any shape to normal scores, and chance bends nothing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dcfpca.rpca.calibration.normal_scores import (
    LEVELS,
    SHAPE_BINS,
    NormalScores,
    shape_from_counts,
    straight_knots,
)
from dcfpca.rpca.refinement.noise_scale import count_sizes

SHAPES = {
    "log-normal": lambda rng, size: np.exp(1.2 * rng.normal(size=size)),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "t3": lambda rng, size: rng.standard_t(3, size=size),
    "two modes": lambda rng, size: rng.normal(size=size) + 6.0 * (rng.random(size) < 0.4),
}


def shape_of(M: NDArray[np.float64], plain: bool = False) -> NormalScores:
    median = np.median(M, axis=1)
    spread = 1.4826 * np.median(np.abs(M - median[:, None]), axis=1)
    spread = np.where(spread > 0.0, spread, 1.0)
    off = M - median[:, None]
    above, below = (np.where(side, np.abs(off), np.nan) for side in (off > 0.0, off <= 0.0))
    counts = [count_sizes(sizes, spread, SHAPE_BINS) for sizes in (above, below)]
    return shape_from_counts(counts[0], counts[1], median, spread, np.full(len(M), plain))


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_of_any_shape_have_normal_quantiles(shape: str) -> None:
    M = SHAPES[shape](np.random.default_rng(1), (1, 4000))
    scores = shape_of(M).forward(M)
    normal = np.random.default_rng(2).normal(size=400_000)
    assert np.quantile(scores, LEVELS) == pytest.approx(np.quantile(normal, LEVELS), abs=0.12)


def test_a_normal_feature_is_only_centred_and_scaled() -> None:
    M = 5.0 + 3.0 * np.random.default_rng(3).normal(size=(20, 300))
    steps = np.diff(shape_of(M).knots, axis=1) / np.diff(straight_knots(np.zeros(20), np.ones(20)), axis=1)
    bent = np.ptp(steps, axis=1) > 1e-9
    assert bent.mean() <= 0.1


def test_a_long_tail_is_compressed_and_a_gross_error_is_still_far_out() -> None:
    M = np.exp(np.random.default_rng(4).normal(size=(1, 3000)))
    scores = shape_of(M)
    assert np.abs(scores.forward(M)).max() < 5.0
    assert scores.forward(np.array([[1e4]]))[0, 0] > 6.0


@pytest.mark.parametrize("shape", SHAPES)
def test_values_come_back_from_their_scores(shape: str) -> None:
    M = SHAPES[shape](np.random.default_rng(5), (1, 1000))
    scores = shape_of(M)
    assert scores.backward(scores.forward(M)) == pytest.approx(M, rel=1e-6, abs=1e-6)


def test_a_coin_is_scaled_by_its_rarer_side() -> None:
    M = (np.random.default_rng(6).random((1, 2000)) < 0.03).astype(np.float64)
    scores = shape_of(M, plain=True).forward(M)
    assert np.unique(scores.round(9)).size == 2
    assert 0.5 < scores.max() - scores.min() < 4.0


def test_gaps_stay_gaps() -> None:
    scores = NormalScores(straight_knots(np.zeros(2), np.ones(2)), np.ones(2))
    assert np.isnan(scores.forward(np.array([[np.nan, 1.0], [0.0, np.nan]]))).sum() == 2


def test_a_rare_grade_is_no_further_off_than_its_rank_and_a_wrong_one_is() -> None:
    rng = np.random.default_rng(6)
    M = rng.choice([1.0, 2.0, 3.0, 4.0, 5.0], p=[0.3, 0.4, 0.2, 0.08, 0.02], size=(1, 2000))
    M[0, :20] *= 10.0  # a per cent of decimal errors
    scores = shape_of(M).forward(np.array([[1.0, 5.0, 30.0, 40.0]]))[0]
    assert abs(scores[0]) < 2.0
    assert scores[1] < 3.0
    assert (scores[2:] > 10.0).all()

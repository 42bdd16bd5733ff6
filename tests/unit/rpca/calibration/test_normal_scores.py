"""Pooled quantiles map any shape to normal scores, and chance bends nothing."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dcfpca.rpca.calibration.normal_scores import (
    LEVELS,
    SCORES,
    SHAPE_BINS,
    NormalScores,
    shape_from_counts,
    straight_knots,
    usual_range,
)
from dcfpca.rpca.refinement.noise_scale import count_sizes
from dcfpca.rpca.small_cells import Merging, merge_sides

SHAPES = {
    "log-normal": lambda rng, size: np.exp(1.2 * rng.normal(size=size)),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "t3": lambda rng, size: rng.standard_t(3, size=size),
    "two modes": lambda rng, size: rng.normal(size=size) + 6.0 * (rng.random(size) < 0.4),
}


def counts_of(M: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Median, spread, and counts above and below."""
    median = np.median(M, axis=1)
    spread = 1.4826 * np.median(np.abs(M - median[:, None]), axis=1)
    spread = np.where(spread > 0.0, spread, 1.0)
    off = M - median[:, None]
    above, below = (np.where(side, np.abs(off), np.nan) for side in (off > 0.0, off <= 0.0))
    return median, spread, *(count_sizes(sizes, spread, SHAPE_BINS) for sizes in (above, below))


def shape_of(M: NDArray[np.float64], plain: bool = False) -> NormalScores:
    median, spread, above, below = counts_of(M)
    merging = Merging(M.shape[1], 1, 1)
    return shape_from_counts(above, below, median, spread, np.full(len(M), plain), merging)


def range_of(values: NDArray[np.float64], hidden: int = 0) -> list[float]:
    """The least and the largest usual value of one feature, to a tenth."""
    median, spread, above, below = counts_of(values[None, :])
    found = median + spread * usual_range(above, below, np.ones(1, bool), hidden)[0]
    return [round(float(end), 1) for end in found]


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


def test_errors_off_the_values_of_a_coin_do_not_widen_its_range() -> None:
    rng = np.random.default_rng(8)
    coin = (rng.random(900) < 0.2).astype(np.float64)
    coin[:45] += rng.uniform(1.6, 4.8, 45) * rng.choice([-1.0, 1.0], 45)
    assert range_of(coin) == [0.0, 1.0]
    scores = shape_of(coin[None, :], plain=True).forward(np.array([[0.0, 1.0, -1.0, 2.0]]))[0]
    assert np.abs(scores[:2]).max() < 2.0
    assert np.abs(scores[2:]).min() > 4.0


def test_entries_that_merging_may_hide_beyond_a_range_leave_none() -> None:
    coin = (np.random.default_rng(9).random(900) < 0.05).astype(np.float64)
    assert range_of(coin, hidden=0) == [0.0, 1.0]
    assert np.isnan(range_of(coin, hidden=16)).all()


def test_counts_and_amounts_that_go_on_have_no_range() -> None:
    rng = np.random.default_rng(10)
    some = rng.random(4000) < 0.25
    assert np.isnan(range_of(np.where(some, rng.geometric(0.2, 4000), 0.0))).all()
    assert np.isnan(range_of(np.where(some, np.exp(0.5 * rng.normal(size=4000)), 0.0))).all()


def shape_of_sites(tables: NDArray[np.float64], told: int, least: int) -> NormalScores:
    """The shape of one log-normal feature from sites' counts, merged to `told`, taken for merged to `least`."""
    spread, sides = np.array([0.6745]), np.zeros((2, 1, SHAPE_BINS.count))
    for values in tables:
        off = values[None, :] - 1.0
        below = count_sizes(np.where(off > 0.0, np.nan, -off), spread, SHAPE_BINS)
        above = count_sizes(np.where(off > 0.0, off, np.nan), spread, SHAPE_BINS)
        sides += np.array(merge_sides(below, above, told))
    merging = Merging(tables.shape[1], len(tables), least)
    return shape_from_counts(sides[1], sides[0], np.ones(1), spread, np.zeros(1, bool), merging)


def test_merged_counts_of_small_sites_leave_the_shape_of_a_continuous_feature() -> None:
    rng, found = np.random.default_rng(11), []
    for _ in range(100):
        tables = np.exp(rng.normal(size=(4, 30)))
        shapes = [shape_of_sites(tables, told, least) for told, least in ((1, 1), (5, 5), (5, 1))]
        assert shapes[0].reach[0] == shapes[1].reach[0] == 1.0
        found.append([shape.knots[0, [0, -1]] for shape in shapes])
    exact, merged, naive = np.mean(found, axis=0)
    assert merged == pytest.approx(exact, abs=0.12 * np.ptp(exact))
    assert abs(naive[1] - exact[1]) > 2.0 * abs(merged[1] - exact[1])


def test_groups_of_values_are_told_from_any_single_group() -> None:
    rng = np.random.default_rng(9)
    single = [rng.normal(size=300), rng.standard_t(3, 300), rng.exponential(size=300), rng.random(300)]
    groups = [
        rng.normal(size=300) + 6.0 * (rng.random(300) < 0.5),
        rng.normal(size=300) + 20.0 * rng.integers(0, 4, 300),
    ]
    knots = np.array([np.quantile(values, LEVELS) for values in (*single, *groups)])
    assert NormalScores(knots, np.ones(6)).grouped().tolist() == [False] * 4 + [True] * 2


def test_slopes_of_scores_are_those_of_the_map() -> None:
    shape = NormalScores(np.stack([np.exp(SCORES), 2.0 * SCORES]), np.ones(2))
    values, step = np.linspace(-9.0, 9.0, 181)[None, :] + 0.0123, 1e-5
    for row in (0, 1):
        rows = np.full(values.size, row)
        scores, slopes = shape.at(rows, values)
        higher, lower = (shape.at(rows, values + off)[0] for off in (step, -step))
        smooth = np.abs((higher - 2.0 * scores + lower) / step**2) < 1e3  # not at a knot
        np.testing.assert_allclose(slopes[smooth], ((higher - lower) / (2.0 * step))[smooth], rtol=1e-4)

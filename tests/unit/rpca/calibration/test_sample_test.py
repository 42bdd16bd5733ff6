from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dcfpca.rpca.calibration.expectation import ScoreModel, expect
from dcfpca.rpca.calibration.sample_test import (
    BY_COVARIANCE,
    BY_DIRECTIONS,
    CAP,
    Prior,
    count_oddness,
    fit_sample_null,
    normal_distance,
    oddness,
)
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.small_cells import Merging, merge_cells

ROWS = 12


def model(few: int = 0) -> ScoreModel:
    rng = np.random.default_rng(5)
    return ScoreModel(rng.normal(size=ROWS), rng.normal(size=(ROWS, 3)), np.full(ROWS, 0.5), np.arange(ROWS) < few)


def drawn(count: int, seed: int = 0) -> FloatArray:
    rng, one = np.random.default_rng(seed), model()
    return (
        one.centre[:, None] + one.factor @ rng.normal(size=(3, count)) + np.sqrt(0.5) * rng.normal(size=(ROWS, count))
    )


def odd(scores: FloatArray, few: int = 0) -> FloatArray:
    return oddness(model(few), scores, expect(model(few), scores))


def test_oddness_of_ordinary_samples_is_normal_with_and_without_gaps() -> None:
    scores = drawn(4000)
    scores[::3, ::2] = np.nan
    found = odd(scores)
    assert abs(np.mean(found)) < 0.1
    assert abs(np.std(found) - 1.0) < 0.1


def test_the_distance_of_trusted_samples_is_that_of_mahalanobis() -> None:
    scores, one = drawn(50), model()
    found = expect(one, scores, np.ones(scores.shape, dtype=bool))
    off = scores - one.centre[:, None]
    covariance = one.factor @ one.factor.T + np.diag(one.own)
    np.testing.assert_allclose(found.distance, np.sum(off * np.linalg.solve(covariance, off), axis=0))


def test_one_gross_entry_adds_at_most_its_cap_and_many_make_a_sample_odd() -> None:
    scores = drawn(200)
    calm, one, many = odd(scores), scores.copy(), scores.copy()
    one[2] += 1000.0
    many += 3.0 * np.where(np.arange(ROWS) % 2, 1.0, -1.0)[:, None]
    cube = np.cbrt((ROWS + CAP**2) / ROWS)
    assert np.median(odd(one) - calm) < (cube - 1.0) / np.sqrt(2.0 / (9.0 * ROWS)) + 0.5
    assert odd(many).min() > 4.0


def test_p_values_of_ordinary_samples_are_uniform() -> None:
    ordinary = 0.3 + 1.3 * np.random.default_rng(1).normal(size=4000)
    null = fit_sample_null(count_oddness(ordinary), Merging(4000, 1, 1))
    for level in (0.01, 0.05, 0.2):
        assert abs(np.mean(null.p_value(ordinary) <= level) / level - 1.0) < 0.2


def test_a_fifth_of_odd_samples_is_found_and_the_ordinary_far_out_stay_rare() -> None:
    rng = np.random.default_rng(1)
    ordinary, bad = 0.3 + 1.3 * rng.normal(size=4000), rng.uniform(6.0, 12.0, 1000)
    null = fit_sample_null(count_oddness(np.concatenate([ordinary, bad])), Merging(5000, 1, 1))
    assert np.mean(null.p_value(ordinary) <= 0.001) <= 0.002
    assert np.mean(null.p_value(bad) <= 0.002) > 0.95


def test_features_of_few_values_make_no_sample_odd() -> None:
    scores = drawn(200)
    scores[0] += 3.9
    np.testing.assert_array_less(odd(scores, few=1), 6.0)


@pytest.mark.parametrize("far", [4.0, 8.0, 15.0, 30.0])
def test_a_group_of_odd_samples_is_found_however_far_off_and_no_ordinary_one_with_it(far: float) -> None:
    rng = np.random.default_rng(2)
    ordinary, bad = 0.7 * rng.normal(size=60), far + 0.7 * rng.normal(size=15)
    null = fit_sample_null(count_oddness(np.concatenate([ordinary, bad])), Merging(75, 1, 1))
    assert np.median(null.p_value(bad)) < 0.002
    assert null.p_value(ordinary).min() > 0.005


Draw = Callable[[np.random.Generator, int], FloatArray]


def without_structure(rng: np.random.Generator, count: int) -> FloatArray:
    return 3.0 + 1.2 * rng.normal(size=count)


def of_a_missed_factor(rng: np.random.Generator, count: int) -> FloatArray:
    """How odd ordinary samples of 200 features are whose model misses a direction with a third of the variance."""
    squared = 2.0 / 3.0 * rng.chisquare(199, count) + 67.0 * rng.chisquare(1, count)
    return normal_distance(squared, np.zeros((200, count)), np.ones((200, count), dtype=bool))


def share_below(level: float, prior: Prior, draw: Draw) -> float:
    """Of p-values of further such samples, with nulls of 30 whose counts are merged."""
    shares = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        counts = merge_cells(count_oddness(draw(rng, 30))[None, :], 5)[0]
        null = fit_sample_null(counts, Merging(30, 1, 5), prior)
        shares.append(np.mean(null.p_value(draw(rng, 1000)) <= level))
    return float(np.mean(shares))


def test_few_merged_samples_that_directions_judge_have_a_null_as_wide_as_what_they_leave_open() -> None:
    assert share_below(0.05, BY_DIRECTIONS, without_structure) < 0.06
    assert share_below(0.01, BY_DIRECTIONS, without_structure) < 0.012


def test_samples_off_along_a_missed_direction_pass_less_often_for_odd_where_directions_judge() -> None:
    as_odd = [share_below(0.01, prior, of_a_missed_factor) for prior in (BY_DIRECTIONS, BY_COVARIANCE)]
    assert as_odd[0] < as_odd[1] / 3.0

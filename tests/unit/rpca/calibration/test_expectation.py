"""Entries are expected from the others: as a regression on them says, and without those that the others contradict."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from dcfpca.rpca.calibration.expectation import (
    correlation_of,
    expect,
    leading_directions,
    model_from_covariance,
    model_from_moments,
    moment_sums,
    shape_variance,
    wrapped_sums,
)
from dcfpca.rpca.calibration.normal_scores import SCORES, NormalScores

ROWS = 6
FEW = np.zeros(ROWS, bool)


def covariance(seed: int = 0) -> NDArray[np.float64]:
    F = np.random.default_rng(seed).normal(size=(ROWS, 2))
    found = F @ F.T + 0.3 * np.eye(ROWS)
    return found / np.sqrt(np.outer(np.diag(found), np.diag(found)))


def draw(count: int, seed: int) -> NDArray[np.float64]:
    return np.linalg.cholesky(covariance()) @ np.random.default_rng(seed).normal(size=(ROWS, count))


def test_expected_is_the_conditional_mean_given_the_other_entries() -> None:
    model = model_from_covariance(np.zeros(ROWS), covariance(), 1e9, FEW)
    whole = model.factor @ model.factor.T + np.diag(model.own)
    X = draw(5, 1)
    X[2, 0] = np.nan
    found = expect(model, X)
    assert found.trusted[~np.isnan(X)].all()
    for j in range(5):
        seen = ~np.isnan(X[:, j])
        for k in range(ROWS):
            others = seen & (np.arange(ROWS) != k)
            weights = np.linalg.solve(whole[np.ix_(others, others)], whole[others, k])
            assert found.score[k, j] == pytest.approx(weights @ X[others, j])
            assert found.deviation[k, j] ** 2 == pytest.approx(whole[k, k] - weights @ whole[others, k])


def test_a_gross_entry_is_distrusted_and_its_neighbours_are_not_blamed() -> None:
    model = model_from_covariance(np.zeros(ROWS), covariance(), 1e9, FEW)
    clean = draw(200, 2)
    spoiled = clean.copy()
    spoiled[3] += 40.0
    found = expect(model, spoiled)
    assert not found.trusted[3].any()
    others = np.arange(ROWS) != 3
    assert np.abs(found.z(spoiled)[others]).max() < 5.0
    shown = clean.copy()
    shown[3] = np.nan
    assert found.score == pytest.approx(expect(model, shown).score)


def test_deviations_of_clean_samples_are_standard_normal() -> None:
    X = draw(4000, 3)
    z = expect(model_from_covariance(np.zeros(ROWS), covariance(), 1e9, FEW), X).z(X)
    assert z.std(axis=1) == pytest.approx(np.ones(ROWS), abs=0.05)


def test_a_distance_beyond_the_last_knot_is_in_doubt_as_far_as_the_others_expect_the_entry_there() -> None:
    scores, one = np.array([[1.0, 9.0, 9.0, 9.0, -9.0]]), np.ones((1, 5))
    expected = np.array([[3.0, 3.0, 1.0, -2.0, 3.0]])
    added = shape_variance(NormalScores(np.exp(SCORES)[None, :], np.ones(1)), scores, expected, one, 300.0)[0]
    assert added[0] == 0.0
    assert added[1] > added[2] > added[3]
    assert np.sqrt(added[1]) > 0.5 * (9.0 - SCORES[-1])
    assert added[3:].max() < 1e-3


def test_moments_with_gross_entries_are_those_of_the_clean_samples() -> None:
    X = draw(4000, 4)
    X[np.random.default_rng(5).random(X.shape) < 0.05] += 30.0
    model = model_from_covariance(np.zeros(ROWS), correlation_of(wrapped_sums(X)), X.shape[1], FEW)
    for _ in range(3):
        model = model_from_moments(model, *moment_sums(model, X))
    found = model.factor @ model.factor.T + np.diag(model.own)
    assert np.abs(found - covariance()).max() < 0.12


def test_moments_add_up_over_any_split_of_the_samples() -> None:
    X, model = draw(50, 6), model_from_covariance(np.zeros(ROWS), covariance(), 50, FEW)
    X[1, 4], X[2, 9] = np.nan, 25.0
    whole = moment_sums(model, X)
    parts = [moment_sums(model, part) for part in (X[:, :20], X[:, 20:])]
    for one, first, second in zip(whole, *parts, strict=True):
        assert first + second == pytest.approx(one)


def test_a_constant_feature_is_correlated_with_none() -> None:
    X = draw(100, 7)
    X[0] = 0.0
    found = correlation_of(wrapped_sums(X))
    assert found[0] == pytest.approx(np.eye(ROWS)[0])


def test_a_rare_value_of_a_feature_of_few_values_stays_trusted() -> None:
    few = np.arange(ROWS) == 0
    model = model_from_covariance(np.zeros(ROWS), np.where(np.eye(ROWS), 0.05, 0.0), 1e9, few)
    X = np.zeros((ROWS, 1))
    X[0] = 2.0
    assert expect(model, X).trusted[0, 0]


def test_a_precise_relation_of_few_samples_stays_precise() -> None:
    rng = np.random.default_rng(8)
    X = rng.normal(size=(ROWS, 1)) @ rng.normal(size=(1, 40)) + 1e-3 * rng.normal(size=(ROWS, 40))
    model = model_from_covariance(np.zeros(ROWS), X @ X.T / 40, 40, FEW)
    assert expect(model, X).deviation.max() < 5e-3


def test_no_direction_leads_among_independent_scores_of_any_variance() -> None:
    X = 3.0 * np.random.default_rng(9).normal(size=(ROWS, 800))
    model = model_from_covariance(np.zeros(ROWS), X @ X.T / 800, 800, FEW)
    assert leading_directions(model, 800) == 0
    assert np.abs(expect(model, X).score).max() < 9.0

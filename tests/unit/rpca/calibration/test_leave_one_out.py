"""Samples that had no part in a run, and those that had, are as far from the model: each is left out of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dcfpca.methods import method_of
from dcfpca.rpca.calibration.calibration import FIGURES
from dcfpca.rpca.calibration.expectation import (
    ScoreModel,
    expect,
    leading_directions,
    model_from_covariance,
    shrinkage,
)
from dcfpca.rpca.calibration.leave_one_out import Origin, distance_without
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.closing_plan import HEAD, VERDICT, ClosingPlan, of_form
from dcfpca.rpca.refinement.noise_scale import fresh_distance_p_value
from dcfpca.rpca.refinement.outlyingness import FIGURES as OUTLYING_FIGURES
from dcfpca.rpca.refinement.scoring import transform_columns
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import parse_spec

ROWS, DRAWN = 20, 2000


def drawn(columns: int, rng: np.random.Generator, factors: int = 3) -> FloatArray:
    loadings = np.random.default_rng(5).normal(size=(ROWS, 3)) * np.where(np.arange(3) < factors, [1.5, 1.0, 0.7], 0.0)
    return np.asarray(loadings @ rng.normal(size=(3, columns)) + 0.8 * rng.normal(size=(ROWS, columns)))


@pytest.mark.parametrize("factors", [0, 3])
def test_distances_are_those_from_a_model_of_the_other_samples(factors: int) -> None:
    X, few, used = drawn(30, np.random.default_rng(1), factors), np.zeros(ROWS, dtype=bool), np.ones(ROWS, dtype=bool)
    centre, covariance, n = X.mean(axis=1), np.cov(X, bias=True), X.shape[1]
    model = model_from_covariance(centre, covariance, n, few)
    assert leading_directions(model, n) == factors
    found = expect(model, X, np.ones(X.shape, dtype=bool))
    origin = Origin(n, np.arange(n) < n - 1, X, factors, shrinkage(ROWS, n))
    close, apart = distance_without(model, X, found, found, used, origin), found.distance
    true = []
    for place in range(n - 1):
        others = np.delete(X, place, axis=1)
        without = model_from_covariance(others.mean(axis=1), np.cov(others, bias=True), n, few)
        true.append(expect(without, X[:, [place]], np.ones((ROWS, 1), dtype=bool)).distance[0])
    assert np.mean(apart[:-1]) < 0.7 * np.mean(true)
    np.testing.assert_allclose(close[:-1], true, rtol=0.2)
    assert abs(np.mean(close[:-1]) / np.mean(true) - 1.0) < 0.05
    assert close[-1] == apart[-1]


def test_distances_are_those_from_the_others_where_entries_were_put_out_of_the_model() -> None:
    rows, n = 60, 30
    X, every = np.random.default_rng(2).normal(size=(rows, n)), np.ones(n, dtype=bool)
    held, few, used = X.copy(), np.zeros(rows, dtype=bool), np.ones(rows, dtype=bool)
    held[np.abs(X).argmax(axis=0), np.arange(n)] = 0.0

    def made_from(columns: FloatArray) -> ScoreModel:
        return model_from_covariance(columns.mean(axis=1), np.cov(columns, bias=True), columns.shape[1], few)

    model, trusted = made_from(held), np.ones(X.shape, dtype=bool)
    found = expect(model, X, trusted)
    origin = Origin(n, every, held, leading_directions(model, n), shrinkage(rows, n))
    close = distance_without(model, X, found, found, used, origin)
    others = [made_from(np.delete(held, place, axis=1)) for place in range(n)]
    true = [expect(one, X[:, [k]], trusted[:, [k]]).distance[0] for k, one in enumerate(others)]
    np.testing.assert_allclose(close, true, rtol=0.3)
    assert abs(np.mean(close) / np.mean(true) - 1.0) < 0.1


def test_hotelling_distances_of_fresh_normal_samples_have_uniform_p_values() -> None:
    rng, columns, rank = np.random.default_rng(1), 20, 3
    p = []
    for _ in range(DRAWN):
        own, fresh = rng.normal(size=(columns, rank)), rng.normal(size=rank)
        off = fresh - own.mean(axis=0)
        p.append(fresh_distance_p_value(np.array([off @ np.linalg.solve(np.cov(own.T), off)]), rank, columns)[0])
    for level in (0.05, 0.01):
        low, high = (float(stats.binom.ppf(end, DRAWN, level)) for end in (0.0005, 0.9995))
        assert low <= np.sum(np.array(p) <= level) <= high


def test_a_result_of_an_earlier_version_is_read_as_made_from_all_columns() -> None:
    method = method_of(parse_spec({"rows": ROWS}))
    broadcast = simulate(method, [ArrayColumns(drawn(60, np.random.default_rng(2)))]).consensus.broadcast
    plan = ClosingPlan.of(broadcast)
    place, verdict = 1 + len(FIGURES) + HEAD.index("taken"), 1 + len(FIGURES) + len(HEAD) + OUTLYING_FIGURES + 3
    assert broadcast.scalars[place] == plan.taken <= plan.columns
    earlier = np.delete(broadcast.scalars, [place, verdict + VERDICT.index("on_few")])
    read = ClosingPlan.of(of_form(replace(broadcast, scalars=earlier), 1))
    np.testing.assert_array_equal(read.verdict, plan.verdict)
    np.testing.assert_array_equal(read.variance, plan.variance)
    assert read.taken == read.columns == 60
    np.testing.assert_array_equal(read.outlying.centre, plan.outlying.centre)


def test_a_result_of_many_features_that_has_no_covariance_is_read_as_such() -> None:
    rows = 150
    method = method_of(parse_spec({"rows": rows, "covariance": False}))
    M = np.random.default_rng(3).normal(size=(rows, 40))
    broadcast = simulate(method, [ArrayColumns(M)]).consensus.broadcast
    read = of_form(replace(broadcast, tensor=broadcast.tensor[:, :-rows]), 2)
    np.testing.assert_array_equal(read.tensor, broadcast.tensor)
    found = ClosingPlan.of(read).calibration
    assert found is not None
    assert not found.whole


@pytest.mark.slow
def test_fresh_normal_samples_are_seldom_odd_after_runs_of_forty() -> None:
    p = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        own, fresh = drawn(40, rng), drawn(300, rng)
        plan = ClosingPlan.of(simulate(method_of(parse_spec({"rows": ROWS})), [ArrayColumns(own)]).consensus.broadcast)
        p.append(transform_columns(plan, fresh).scored.p_value)
    assert np.mean(np.concatenate(p) <= 0.05) <= 0.06
    assert np.mean(np.concatenate(p) <= 0.01) <= 0.015


@pytest.mark.slow
def test_normal_samples_fewer_than_their_features_are_seldom_odd() -> None:
    p = []
    for seed in (2, 5):
        X = np.random.default_rng(seed).normal(size=(100, 60))
        method = method_of(parse_spec({"rows": 100, "scaling": "robust"}))
        run = simulate(method, [ArrayColumns(X[:, first::3]) for first in range(3)])
        p += [result.p_values for result in run.results]
    assert np.count_nonzero(np.concatenate(p) <= 0.001) <= 1  # of 120

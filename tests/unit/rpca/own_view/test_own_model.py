"""A site's own model: nothing that others send hides a pattern from it, and what agrees with it stays shared."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.calibration.expectation import ScoreModel, expect
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.own_view.own_model import covariance_of, own_model

ROWS, COLUMNS, NOISE = 20, 200, 0.3
FEW = np.zeros(ROWS, dtype=bool)


def _world(seed: int) -> tuple[np.random.Generator, FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(ROWS, 3)) / np.sqrt(3.0)
    pattern = np.zeros(ROWS)
    pattern[rng.choice(ROWS, 5, replace=False)] = 1.0
    return rng, factors, pattern


def _shared(factors: FloatArray) -> ScoreModel:
    return ScoreModel(np.zeros(ROWS), factors, np.full(ROWS, NOISE**2), FEW)


def _scores(rng: np.random.Generator, factors: FloatArray, columns: int = COLUMNS) -> FloatArray:
    return np.asarray(factors @ rng.normal(size=(factors.shape[1], columns)) + NOISE * rng.normal(size=(ROWS, columns)))


@pytest.mark.parametrize("strength", [1.5, 4.0, 1e3])
def test_a_planted_direction_does_not_hide_a_pattern_from_a_site_that_does_not_move_along_it(strength: float) -> None:
    rng, factors, pattern = _world(1)
    scores = _scores(rng, factors)
    scores[:, :5] += 4.0 * pattern[:, None]
    planted = _shared(np.column_stack([factors, strength * pattern]))
    own = own_model(planted, scores)
    hit = np.ix_(pattern > 0.0, np.arange(5))
    assert (np.abs(expect(planted, scores).z(scores))[hit] < 4.0).mean() > 0.8, "else nothing was hidden"
    assert (np.abs(expect(own, scores).z(scores))[hit] > 4.0).all()


def test_a_site_that_agrees_with_the_others_judges_as_they_do() -> None:
    rng, factors, _ = _world(2)
    shared = _shared(factors)
    own = own_model(shared, _scores(rng, factors))
    fresh = _scores(rng, factors, 2000)
    one, other = (expect(model, fresh).z(fresh) for model in (shared, own))
    assert np.sqrt(np.mean((one - other) ** 2)) < 0.4
    assert np.mean(np.abs(other) > 4.0) < 2.0 * np.mean(np.abs(one) > 4.0) + 1e-3


def test_a_factor_that_only_this_site_has_is_not_taken_for_errors() -> None:
    rng, factors, _ = _world(3)
    here = np.column_stack([factors, rng.normal(size=(ROWS, 2))])
    scores = _scores(rng, here)
    shared = _shared(factors)
    far = [np.mean(np.abs(expect(m, scores).z(scores)) > 4.0) for m in (shared, own_model(shared, scores))]
    assert far[0] > 0.1
    assert far[1] < 2e-3


@pytest.mark.parametrize("seed", range(5))
def test_noise_that_the_others_do_not_have_or_pretend_not_to_have_flags_nobody_here(seed: int) -> None:
    rng, factors, _ = _world(seed)
    scores = _scores(rng, factors)
    shared = ScoreModel(np.zeros(ROWS), factors, np.full(ROWS, (0.35 * NOISE) ** 2), FEW)
    far = [np.mean(np.abs(expect(m, scores).z(scores)) > 4.0) for m in (shared, own_model(shared, scores))]
    assert far[0] > 0.1
    assert far[1] < 2e-3


def test_own_centres_are_taken_where_they_are_clearly_own_also_of_few_columns() -> None:
    rng, factors, _ = _world(4)
    offset = np.zeros(ROWS)
    offset[3] = 6.0
    own = own_model(_shared(factors), _scores(rng, factors, 8) + offset[:, None])
    assert abs(own.centre[3] - 6.0) < 1.5
    np.testing.assert_array_equal(np.delete(own.centre, 3), 0.0)


def test_few_columns_leave_the_shared_covariance_outside_of_its_leading_directions() -> None:
    rng, factors, _ = _world(5)
    shared = _shared(factors)
    own = own_model(shared, _scores(rng, factors, 12))
    weak = np.linalg.eigh(covariance_of(shared))[1][:, : ROWS - 4]
    np.testing.assert_allclose(weak.T @ covariance_of(own) @ weak, weak.T @ covariance_of(shared) @ weak, atol=1e-6)


def test_a_coin_keeps_its_variance_where_rounding_tells_its_values_apart() -> None:
    """More than half of the entries lie next to the median, but not on it: no deviation of a coin is that small."""
    rng, factors, _ = _world(7)
    few = np.arange(ROWS) == 0
    factors[0] = 0.0
    shared = ScoreModel(np.zeros(ROWS), factors, np.where(few, 1.0, NOISE**2), few)
    scores = _scores(rng, factors)
    scores[0] = np.where(np.arange(COLUMNS) % 20 < 11, -1.6, 1.6) + 1e-12 * rng.normal(size=COLUMNS)
    own = own_model(shared, scores)
    assert covariance_of(own)[0, 0] > 0.5
    assert np.abs(expect(own, scores).z(scores)[0]).max() < 4.0

from __future__ import annotations

import numpy as np

from dcfpca.rpca.calibration.expectation import ScoreModel, expect
from dcfpca.rpca.calibration.sample_test import CAP, count_oddness, fit_sample_null, oddness
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.small_cells import Merging

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

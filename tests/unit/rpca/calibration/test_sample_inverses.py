"""Inverses of samples that share all but a few vectors: the same as those of a matrix for each sample."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.calibration.expectation import ScoreModel, expect
from dcfpca.rpca.calibration.sample_inverses import sample_inverses


@pytest.mark.parametrize(("rows", "width"), [(40, 40), (60, 3), (5, 5)])
@pytest.mark.parametrize("gaps", [0, 1, 2, 20])
def test_shared_inverses_and_their_growth_are_those_of_each_sample(rows: int, width: int, gaps: int) -> None:
    rng = np.random.default_rng(gaps)
    F, own = rng.normal(size=(rows, width)), rng.uniform(0.05, 1.0, size=rows)
    trusted = np.ones((7, rows), dtype=bool)
    for row in trusted[1:]:
        row[rng.choice(rows, min(gaps, rows - 1), replace=False)] = False
    inverses, leverage = sample_inverses(F, own, trusted)
    found, vectors = inverses.last(0), rng.normal(size=(7, width))
    for sample, here in enumerate(trusted):
        expected = np.linalg.inv(np.eye(width) + (F[here] / own[here, None]).T @ F[here])
        np.testing.assert_allclose(found[sample], expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(leverage[sample], np.einsum("kr,rs,ks->k", F, expected, F), rtol=1e-8)
        for one in (inverses.times(vectors)[sample], inverses.of(np.array([sample])).times(vectors[[sample]])[0]):
            np.testing.assert_allclose(one, expected @ vectors[sample], rtol=1e-8, atol=1e-10)


def test_features_that_determine_each_other_cost_no_digits() -> None:
    # Two features are the same but for 1e-10 of their variance: taking one out of the shared inverse would cancel.
    rng = np.random.default_rng(0)
    F = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    F[1] = F[0]
    own = np.full(20, 1e-10)
    trusted = np.ones((2, 20), dtype=bool)
    trusted[1, 5] = False
    inverses, _ = sample_inverses(F, own, trusted)
    here = trusted[1]
    expected = np.linalg.inv(np.eye(20) + (F[here] / own[here, None]).T @ F[here])
    np.testing.assert_allclose(inverses.last(0)[1], expected, rtol=1e-6, atol=1e-12)


def test_entries_that_contradict_each_other_leave_everything_finite() -> None:
    rng = np.random.default_rng(1)
    factor = np.linalg.qr(rng.normal(size=(19, 19)))[0] * np.geomspace(1.0, 1e-4, 19)
    model = ScoreModel(np.zeros(19), factor, np.full(19, 1e-10), np.zeros(19, dtype=bool))
    found = expect(model, 50.0 * rng.normal(size=(19, 400)))
    assert np.isfinite(found.score).all()
    assert (found.deviation > 0.0).all()

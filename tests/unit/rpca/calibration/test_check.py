"""How many lines of the list a run says are ordinary, against how many are."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.calibration import check
from dcfpca.rpca.calibration.calibration import Calibration
from dcfpca.rpca.calibration.check import DRAWN
from dcfpca.rpca.calibration.check import _drawn as draw_scores
from dcfpca.rpca.column_blocks import equal_counts, split
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.own_view import own_view
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import VERDICT, ClosingPlan
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver

SAMPLES = 400


def _table(rng: np.random.Generator) -> FloatArray:
    """Ten features of two factors, and two that are nearly sums of others."""
    X = rng.normal(size=(SAMPLES, 2)) @ rng.normal(size=(2, 10)) + 0.5 * rng.normal(size=(SAMPLES, 10))
    sums = np.column_stack([X[:, 0] + X[:, 1], X[:, 2] - X[:, 3]]) + 0.005 * rng.normal(size=(SAMPLES, 2))
    return np.column_stack([X, sums])


@pytest.mark.parametrize("seed", [0, 1])
def test_hardly_any_line_is_said_to_be_ordinary_where_errors_are_gross_and_relations_nearly_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = _table(rng)
    wrong = rng.random(X.shape) < 0.02
    M = np.where(wrong, X + rng.choice([-20.0, 20.0], X.shape), X).T
    method = with_closing_rounds(subspace_method(SubspaceSolver(12, 6, 100, 1e-9, fixed_rank=False)), fixed_rank=False)
    run = simulate(method, split(M, equal_counts(SAMPLES, 4)))
    flagged = run.outliers.toarray() != 0.0
    stated = ClosingPlan.of(run.consensus.broadcast).verdict[VERDICT.index("ordinary")]
    ordinary = np.count_nonzero(flagged & ~wrong.T)
    assert np.count_nonzero(flagged & wrong.T) > 0.9 * wrong.sum()
    assert stated <= 2.0 * ordinary + 5.0


def test_what_is_drawn_does_not_grow_with_the_columns_of_a_site_and_flags_are_counted_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = list[int]()

    def draw(known: Calibration, count: int, rng: np.random.Generator) -> FloatArray:
        drawn.append(count)
        return draw_scores(known, count, rng)

    monkeypatch.setattr(check, "_drawn", draw)
    monkeypatch.setattr(own_view, "SAMPLE", 100)
    rng = np.random.default_rng(0)
    M = _table(rng).T
    M[rng.random(M.shape) < 0.02] += 20.0
    method = with_closing_rounds(subspace_method(SubspaceSolver(12, 6, 100, 1e-9, fixed_rank=False)), fixed_rank=False)
    run = simulate(method, split(M, (300, 100)))
    per_site = DRAWN // (12 * 100)
    assert drawn == [100 * per_site, 100 * per_site]
    stated = ClosingPlan.of(run.consensus.broadcast).verdict
    assert stated[VERDICT.index("flagged")] == pytest.approx(run.outliers.nnz / M.size)

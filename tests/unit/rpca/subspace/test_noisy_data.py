"""Data as it is: a strong level, weak variations, noise. Nothing fits exactly, and rounds converge slowly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dcfpca.rpca.column_blocks import ArrayColumns, split
from dcfpca.rpca.method import Consensus, Outcome, Total
from dcfpca.rpca.simulate import exchange, simulate
from dcfpca.rpca.stage import Site
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.round_plan import RoundPlan
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.rpca.thresholds import influence


def test_a_narrow_run_that_has_not_converged_agrees_however_the_columns_are_dealt_out() -> None:
    rng = np.random.default_rng(4)
    levels = rng.standard_normal((19, 5)) * 0.5 ** np.arange(5) @ rng.standard_normal((5, 3000))
    M = levels + 0.05 * rng.standard_t(2, levels.shape)
    method = subspace_method(SubspaceSolver(rows=19, width=3, rounds=30, tolerance=1e-9))
    pooled, dealt = (simulate(method, split(M, counts)) for counts in ((3000,), (1, 999, 1000, 1000)))
    assert pooled.consensus.outcome is Outcome.OUT_OF_ROUNDS
    scores = [np.abs(M - run.low_rank).sum(axis=0) for run in (pooled, dealt)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=0, atol=1e-9)


def test_when_the_strong_directions_rest_the_weak_ones_are_looked_at_before_the_threshold_falls() -> None:
    # At rest the threshold falls at once. Directions that could not enter in that round would be outliers for good.
    rng = np.random.default_rng(7)
    basis = np.linalg.qr(rng.standard_normal((19, 3)))[0]
    V = np.stack([30.0 + rng.standard_normal(4000), *(0.5 * rng.standard_normal((2, 4000)))])
    M = basis @ V + 0.01 * rng.standard_normal((19, 4000))
    seen: list[tuple[float, bool]] = []

    def look(now: Consensus, _: Sequence[Site]) -> None:
        seen.append((now.progress.change, RoundPlan.of(now.broadcast).narrow))

    simulate(subspace_method(SubspaceSolver(rows=19, width=3, rounds=20, tolerance=1e-6)), [ArrayColumns(M)], look)
    at_rest = [narrow for change, narrow in seen if change < 1e-6]
    assert at_rest
    assert not any(at_rest)


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_what_has_converged_rests_under_the_very_threshold_of_its_result(seed: int) -> None:
    problem = generate(Recipe(200, 300, 5, 0.05, noise=0.1, counts=(100, 100, 100)), seed)
    run = simulate(subspace_method(SubspaceSolver(rows=200, width=5, rounds=200, tolerance=1e-9)), problem.sites())
    assert run.consensus.outcome is Outcome.CONVERGED
    left, _, right = np.linalg.svd(run.low_rank, full_matrices=False)
    influences = influence(problem.M - run.low_rank, run.consensus.progress.threshold, SubspaceSettings().a)
    tangent = max(np.linalg.norm(left[:, :5].T @ influences), np.linalg.norm(influences @ right[:5].T))
    assert tangent <= 1e-7 * np.linalg.norm(run.low_rank)


@pytest.mark.parametrize("seed", [19, 43])
def test_rounding_decides_nothing_even_where_a_run_at_rest_is_moved_again(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With tolerance 0 the threshold goes on falling below what rests: L moves by rounding alone, then again by far
    more. Whether that step has momentum must not depend on which of two roundings was the larger."""
    sites = generate(Recipe(rows=24, columns=33, rank=2, sparsity=0.05, noise=0.05, counts=(14, 10, 9)), 3).sites()
    method = subspace_method(SubspaceSolver(rows=24, width=2, rounds=28, tolerance=0.0))
    undisturbed = simulate(method, sites)
    rng = np.random.default_rng(seed)

    def rounded_otherwise(*arguments: Any) -> Total:
        total = exchange(*arguments)
        tensor = total.sums.tensor * (1.0 + 1e-16 * rng.standard_normal(total.sums.tensor.shape))
        return replace(total, sums=replace(total.sums, tensor=tensor))

    monkeypatch.setattr("dcfpca.rpca.simulate.exchange", rounded_otherwise)
    np.testing.assert_allclose(simulate(method, sites).low_rank, undisturbed.low_rank, rtol=0, atol=1e-11)

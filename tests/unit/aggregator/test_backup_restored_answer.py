"""What becomes of the answer where rounds were closed without a site, as may happen while an aggregator is restored.

The rules of a restored run, with every site in every round, are shown to give the very answer of an undisturbed run.
A round without a site measures the noise on fewer entries. The threshold may then settle a step or two of its grid
away, which is another problem with another answer. An independent optimizer tells the two apart from a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from dcfpca.rpca.method import Consensus, FloatArray, Outcome
from dcfpca.rpca.simulate import collect, exchange
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.schedule import HYSTERESIS
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Problem, Recipe, generate
from tests.support.services.federation import relative

RANK, SITES = 2, (0, 1, 2)
SOLVER = SubspaceSolver(rows=24, width=RANK, rounds=400, tolerance=1e-9)
METHOD = subspace_method(SOLVER)


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """L of all sites, and the θ that it is for."""

    L: FloatArray
    threshold: float


@pytest.fixture(scope="module")
def problem() -> Problem:
    return generate(Recipe(rows=24, columns=30, rank=RANK, sparsity=0.05, noise=0.05, counts=(10, 10, 10)), 3)


@pytest.fixture(scope="module")
def undisturbed(problem: Problem) -> Answer:
    return played(problem, {})


def played(problem: Problem, missing: Mapping[int, int], copied: int = -1, lost: int = -1, last: int = 3) -> Answer:
    """A run where a round may miss a site, and where the store of one round is restored when another was open.

    Of the round in which it was lost only the first `last` sites had made their update.
    """
    sites, consensus = [METHOD.site(own) for own in problem.sites()], METHOD.begin()
    copy: Consensus | None = None
    while consensus.outcome is None:
        copy = consensus if consensus.round == copied else copy
        if copy is not None and consensus.round == lost:
            exchange(METHOD, consensus, sites[:last])
            consensus, copy = replace(copy, round=lost + 1), None
        present = [sites[k] for k in SITES if missing.get(consensus.round) != k]
        consensus = METHOD.advance(consensus, exchange(METHOD, consensus, present))
    assert consensus.outcome is Outcome.CONVERGED
    L = np.concatenate([collect(site, consensus).L for site in sites], axis=1)
    return Answer(L, consensus.progress.threshold)


def optimum(M: FloatArray, start: FloatArray, threshold: float, a: float) -> FloatArray:
    """The best L of the rank that L-BFGS finds from this one, for the MCP loss of the residuals at this threshold."""
    left, values, right = np.linalg.svd(start, full_matrices=False)
    root = np.sqrt(values[:RANK])
    factors = np.concatenate([left[:, :RANK] * root, right[:RANK].T * root])

    def loss(flat: FloatArray) -> tuple[float, FloatArray]:
        A, B = np.split(flat.reshape(factors.shape), [M.shape[0]])
        R = M - A @ B.T
        room = np.maximum(a * threshold - np.abs(R), 0.0)
        inside = np.abs(R) <= threshold
        losses = np.where(inside, R**2, a * threshold**2 - room**2 / (a - 1.0)) / 2.0
        pull = np.where(inside, R, np.sign(R) * room / (a - 1.0))
        return float(losses.sum()), -np.concatenate([pull @ B, pull.T @ A]).ravel()

    options: Any = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 0.0, "gtol": 1e-12, "maxcor": 30}
    found = minimize(loss, factors.ravel(), jac=True, method="L-BFGS-B", options=options).x
    A, B = np.split(found.reshape(factors.shape), [M.shape[0]])
    return A @ B.T


@pytest.mark.parametrize("last", [0, 1, 2, 3])
@pytest.mark.parametrize(("copied", "lost"), [(0, 3), (1, 2), (2, 4), (3, 4), (4, 7), (6, 11)])
def test_a_restored_run_that_has_every_site_has_the_very_answer(
    problem: Problem, undisturbed: Answer, copied: int, lost: int, last: int
) -> None:
    """Wherever the sites were when the aggregator was lost: some a round ahead of others."""
    restored = played(problem, {}, copied, lost, last)
    assert restored.threshold == undisturbed.threshold
    assert relative(restored.L, undisturbed.L) <= 1e-8


@pytest.mark.parametrize(("round", "site", "steps"), [(3, 0, 1), (4, 2, 1), (16, 0, 2)])
def test_a_round_without_a_site_may_end_steps_of_the_threshold_away_with_the_right_answer_for_that(
    problem: Problem, undisturbed: Answer, round: int, site: int, steps: int
) -> None:
    """Two steps at most: the noise is kept while it is measured within one and a half, above or below."""
    other, a = played(problem, {round: site}), SOLVER.settings.a
    assert abs(np.log(other.threshold / undisturbed.threshold)) == pytest.approx(steps * np.log1p(HYSTERESIS))
    assert relative(optimum(problem.M, undisturbed.L, undisturbed.threshold, a), undisturbed.L) <= 1e-7
    assert relative(optimum(problem.M, undisturbed.L, other.threshold, a), other.L) <= 1e-7
    truth = relative(undisturbed.L, problem.L)
    assert relative(other.L, undisturbed.L) <= truth / 20.0, "far below what the noise leaves unknown"

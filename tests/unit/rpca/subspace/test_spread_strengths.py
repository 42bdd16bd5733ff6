"""Exact data whose directions differ in strength by orders of magnitude: weak ones enter while strong ones stand."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.refinement.closing import FAR_ABOVE, SIDE_BY_SIDE, stalled, with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import ClosingPlan, FitEnding
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.rank_rules import RankRules
from dcfpca.rpca.subspace.round_plan import State
from dcfpca.rpca.subspace.schedule import Schedule
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Outliers, Recipe, generate, relative_error

ROWS, COLUMNS, WIDTH = 200, 200, 6
LEVEL, NOISE = 2e-2, 7e-4


@pytest.mark.parametrize("kind", [Outliers.IMPULSE, Outliers.UNIFORM, Outliers.SMALL])
@pytest.mark.parametrize("sparsity", [0.05, 0.15])
@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("times", [1, 2])
def test_strengths_spread_over_orders_of_magnitude_are_solved_exactly(
    times: int, condition: float, sparsity: float, kind: Outliers
) -> None:
    problem = generate(Recipe(200, 200, 5, sparsity, kind, condition=condition, counts=equal_counts(200, 5)), 3)
    fit = subspace_method(SubspaceSolver(200, 5 * times, 100, 1e-9, fixed_rank=times == 1))
    run = simulate(with_closing_rounds(fit, fixed_rank=times == 1), problem.sites())
    plan = ClosingPlan.of(run.consensus.broadcast)
    assert (plan.ending, plan.rank) == (FitEnding.EXACT, 5)
    assert relative_error(run.low_rank, problem.L) < 1e-8


def test_a_weak_direction_of_two_waits_for_outliers_as_small_as_the_strong_one() -> None:
    problem = generate(Recipe(100, 100, 2, 0.15, Outliers.SMALL, condition=1e3, counts=equal_counts(100, 3)), 7056)
    run = simulate(with_closing_rounds(subspace_method(SubspaceSolver(100, 2, 100, 1e-9))), problem.sites())
    assert ClosingPlan.of(run.consensus.broadcast).ending is FitEnding.EXACT
    assert relative_error(run.low_rank, problem.L) < 1e-8


def test_many_outliers_as_small_as_the_low_rank_part_are_not_handed_over() -> None:
    problem = generate(Recipe(200, 200, 10, 0.4, Outliers.SMALL, counts=equal_counts(200, 5)), 1)
    run = simulate(with_closing_rounds(subspace_method(SubspaceSolver(200, 10, 150, 1e-9))), problem.sites())
    assert ClosingPlan.of(run.consensus.broadcast).ending is FitEnding.EXACT
    assert relative_error(run.low_rank, problem.L) < 1e-8


def test_no_fit_is_handed_over_under_a_threshold_far_above_the_noise() -> None:
    noise = np.concatenate([[1.0], np.full(20, 0.1)])
    assert stalled(noise, 5, 50.0, 0.9 * FAR_ABOVE * 0.1)
    assert not stalled(noise, 5, 50.0, 1.1 * FAR_ABOVE * 0.1)
    assert stalled(noise, 5, 150.0, 0.9 * SIDE_BY_SIDE * 0.1)
    assert not stalled(noise, 5, 150.0, 1.1 * SIDE_BY_SIDE * 0.1)


def _entering(third: np.ndarray, values: list[float], noise: float = NOISE) -> int:
    """How many directions enter beside two that did, when the third is this one and L and the noise stand."""
    U = np.linalg.qr(np.column_stack([third, np.random.default_rng(0).standard_normal((ROWS, WIDTH - 1))]))[0]
    U = U[:, [1, 2, 0, 3, 4, 5]]
    schedule = Schedule(LEVEL, LEVEL, noise, 1.5 * noise, 1.0, 1.0, 0.0, 1.0, float(COLUMNS), 0.0)
    entered = np.array([1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    old = State(U, entered, np.array(values), schedule, 5, change=1e-5)
    rules = RankRules(ROWS, WIDTH, False, SubspaceSettings())
    weights = rules.with_evident_directions(entered, U, np.array(values), old, schedule, float(COLUMNS))
    return int(np.count_nonzero(weights))


def test_a_weak_direction_enters_while_the_threshold_is_high() -> None:
    spread = np.random.default_rng(1).standard_normal(ROWS)
    assert _entering(spread, [200.0, 20.0, 0.21, 0.02, 0.02, 0.02]) == 3
    assert SubspaceSettings().rank_entry * np.sqrt(ROWS) * LEVEL > 0.21  # the bar for outliers


def test_what_outliers_below_the_threshold_make_does_not_enter() -> None:
    spread, single = np.random.default_rng(1).standard_normal(ROWS), np.eye(ROWS)[7]
    assert _entering(single, [200.0, 20.0, 0.21, 0.02, 0.02, 0.02]) == 2  # one large entry
    assert _entering(spread, [200.0, 20.0, 0.21, 0.19, 0.15, 0.1]) == 2  # no gap
    assert _entering(spread, [200.0, 20.0, 0.21, 0.02, 0.02, 0.02], noise=1e-5) == 2  # not in most entries

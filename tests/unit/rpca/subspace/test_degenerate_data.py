"""Data that other solvers stumble over: the right answer, and never a NaN in the consensus."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dcfpca.rpca.column_blocks import split
from dcfpca.rpca.method import Outcome, TensorMessage, Total
from dcfpca.rpca.simulate import Simulation, simulate
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Recipe, generate, relative_error

PROBLEM = generate(Recipe(100, 120, 3, 0.05, counts=(120,)), 1)
THIRDS = (40, 40, 40)
both_ways = pytest.mark.parametrize(("fixed_rank", "width"), [(True, 3), (False, 6)])


def solve(M: np.ndarray, width: int, fixed_rank: bool, counts: tuple[int, ...] = THIRDS) -> Simulation:
    run = simulate(
        subspace_method(SubspaceSolver(M.shape[0], width, 150, 1e-10, fixed_rank=fixed_rank)), split(M, counts)
    )
    assert np.isfinite(run.consensus.broadcast.flat()).all()
    assert np.isfinite(run.low_rank).all()
    return run


@both_ways
@pytest.mark.parametrize("scale", [1e-100, 1e-12, 1e12, 1e100])
def test_the_scale_of_the_data_does_not_matter(scale: float, fixed_rank: bool, width: int) -> None:
    run = solve(PROBLEM.M * scale, width, fixed_rank)
    assert relative_error(run.low_rank / scale, PROBLEM.L) <= 1e-9


@both_ways
@pytest.mark.parametrize("counts", [(1, 1, 118), (2,) * 60, (1,) * 120], ids=["one-column", "below-rank", "all-ones"])
def test_small_sites_count_like_any_other(counts: tuple[int, ...], fixed_rank: bool, width: int) -> None:
    assert relative_error(solve(PROBLEM.M, width, fixed_rank, counts).low_rank, PROBLEM.L) <= 1e-9


@both_ways
@pytest.mark.parametrize("share", [0.4, 0.6, 0.7])
def test_mostly_zero_rows_leave_the_rest_exact(share: float, fixed_rank: bool, width: int) -> None:
    L = PROBLEM.L.copy()
    L[: int(100 * share)] = 0.0
    assert relative_error(solve(L + PROBLEM.S, width, fixed_rank).low_rank, L) <= 1e-9


@both_ways
def test_a_site_of_zeros_only_gets_zeros(fixed_rank: bool, width: int) -> None:
    M, L = PROBLEM.M.copy(), PROBLEM.L.copy()
    M[:, :40] = L[:, :40] = 0.0
    assert relative_error(solve(M, width, fixed_rank).low_rank, L) <= 1e-9


@both_ways
def test_ten_constant_rows_are_one_more_direction(fixed_rank: bool, width: int) -> None:
    L = PROBLEM.L.copy()
    L[50:60] = 7.0
    run = solve(L + PROBLEM.S, max(width, 4), fixed_rank)
    assert run.consensus.progress.rank == 4
    assert relative_error(run.low_rank, L) <= 1e-9


@both_ways
def test_duplicate_columns_have_rank_one_whatever_was_asked(fixed_rank: bool, width: int) -> None:
    L = np.tile(PROBLEM.L[:, :1], (1, 120))
    run = solve(L + PROBLEM.S, width, fixed_rank)
    assert run.consensus.progress.rank == 1
    assert relative_error(run.low_rank, L) <= 1e-9


@pytest.mark.parametrize("fixed_rank", [True, False])
@pytest.mark.parametrize("width", [12, 100])
def test_a_rank_above_the_true_one_is_still_exact(width: int, fixed_rank: bool) -> None:
    run = solve(PROBLEM.M, width, fixed_rank)
    assert run.consensus.progress.rank == 3
    assert relative_error(run.low_rank, PROBLEM.L) <= 1e-9


@both_ways
@pytest.mark.parametrize("value", [0.0, np.nan])
def test_nothing_but_zeros_or_gaps_gives_zero_and_ends(value: float, fixed_rank: bool, width: int) -> None:
    run = solve(np.full((100, 120), value), width, fixed_rank)
    assert not run.low_rank.any()
    assert run.outliers.nnz == 0
    assert run.consensus.progress.rank == 0


@both_ways
def test_rows_that_one_site_never_saw_are_filled_in_from_the_others(fixed_rank: bool, width: int) -> None:
    M = PROBLEM.M.copy()
    M[:30, :40] = np.nan
    assert relative_error(solve(M, width, fixed_rank).low_rank, PROBLEM.L) <= 1e-8


@both_ways
def test_a_row_that_nobody_saw_is_zero_and_harms_nothing(fixed_rank: bool, width: int) -> None:
    M, L = PROBLEM.M.copy(), PROBLEM.L.copy()
    M[5] = np.nan
    L[5] = 0.0
    run = solve(M, width, fixed_rank)
    assert not run.low_rank[5].any()
    assert relative_error(run.low_rank, L) <= 1e-9


@both_ways
def test_a_column_without_observations_is_zero_and_harms_nothing(fixed_rank: bool, width: int) -> None:
    M, L = PROBLEM.M.copy(), PROBLEM.L.copy()
    M[:, 5] = np.nan
    L[:, 5] = 0.0
    assert relative_error(solve(M, width, fixed_rank).low_rank, L) <= 1e-9


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("width", [12, 16, 25])
def test_data_without_any_outlier_is_exact_below_any_bound(width: int, seed: int) -> None:
    # The spare directions vanish to rounding in one round and have all of the residual in the next.
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((50, 8)) @ rng.standard_normal((8, 200))
    run = solve(L, width, False, (100, 60, 40))
    assert run.consensus.progress.rank == 8
    assert relative_error(run.low_rank, L) <= 1e-9


MADE_UP: dict[str, Callable[[TensorMessage, np.random.Generator], TensorMessage]] = {
    "noise": lambda own, rng: TensorMessage(10.0 * rng.standard_normal(own.tensor.shape), own.scalars),
    "turned": lambda own, rng: TensorMessage(-5.0 * own.tensor, own.scalars),
    "counts": lambda own, rng: TensorMessage(0.0 * own.tensor, np.abs(rng.standard_normal(own.scalars.shape))),
    "negative counts": lambda own, rng: TensorMessage(1e6 * own.tensor, -own.scalars),
    "huge": lambda own, rng: TensorMessage(np.full(own.tensor.shape, 1e100), 1e100 * own.scalars),
}


@pytest.mark.parametrize("kind", MADE_UP)
@pytest.mark.parametrize("fixed", [True, False])
def test_made_up_updates_of_three_sites_in_ten_end_a_run_or_not_but_raise_nothing(kind: str, fixed: bool) -> None:
    """Laws that true sums keep refuse most of them; what is summed all the same must not stop the aggregator."""
    rng = np.random.default_rng(0)
    M = rng.standard_normal((30, 3)) @ rng.standard_normal((3, 300)) + 0.1 * rng.standard_normal((30, 300))
    method = subspace_method(SubspaceSolver(30, 4, 25, 1e-9, fixed_rank=fixed))
    sites, consensus = [method.site(own) for own in split(M, (30,) * 10)], method.begin()
    with np.errstate(all="ignore"):
        while consensus.outcome is None:
            updates = [site.answer(consensus) for site in sites]
            updates[:3] = [MADE_UP[kind](own, rng) for own in updates[:3]]
            summed = np.sum([one.flat() for one in updates], axis=0)
            total = TensorMessage.unflatten(method.stage(consensus.stage).up, summed)
            consensus = method.advance(consensus, Total(total, 10))
    assert consensus.outcome in (Outcome.DIVERGED, Outcome.OUT_OF_ROUNDS, Outcome.CONVERGED)

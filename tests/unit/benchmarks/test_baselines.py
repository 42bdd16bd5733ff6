from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import baselines
from benchmarks.baselines import BaselineResult, Ending
from benchmarks.baselines.altproj import _tangent_projection
from benchmarks.baselines.elementwise_kernels import clean, multiply, sweeps
from benchmarks.baselines.scaledgd import _kept_out
from benchmarks.baselines.spectrum import Thresholding, full, leading
from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.gradient.settings import GradientSettings
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.synthetic import Outliers, Problem, Recipe, generate, relative_error


def _problem(kind: Outliers = Outliers.UNIFORM) -> Problem:
    return generate(Recipe(rows=150, columns=200, rank=6, sparsity=0.05, outliers=kind), seed=1)


def _is_explained(result: BaselineResult, M: FloatArray, tolerance: float) -> bool:
    return bool(np.linalg.norm(M - result.L - result.S) <= tolerance * np.linalg.norm(M))


@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("kind", [Outliers.IMPULSE, Outliers.UNIFORM, Outliers.SMALL])
def test_alm_finds_the_truth_and_its_rank(kind: Outliers, partial: bool) -> None:
    problem = _problem(kind)
    result = baselines.alm(problem.M, partial=partial, tolerance=1e-9)
    assert result.outcome is Ending.CONVERGED
    assert result.rank == 6
    assert relative_error(result.L, problem.L) < 1e-6
    assert _is_explained(result, problem.M, 1e-9)


@pytest.mark.parametrize("kind", [Outliers.IMPULSE, Outliers.UNIFORM, Outliers.SMALL])
def test_alternating_projections_find_the_truth_of_known_rank(kind: Outliers) -> None:
    problem = _problem(kind)
    result = baselines.accelerated_alternating_projections(problem.M, 6, tolerance=1e-9)
    assert result.outcome is Ending.CONVERGED
    assert relative_error(result.L, problem.L) < 1e-6
    assert _is_explained(result, problem.M, 1e-9)
    np.testing.assert_array_equal(result.S[problem.S == 0], 0.0)


@pytest.mark.parametrize("kind", [Outliers.IMPULSE, Outliers.UNIFORM])
@pytest.mark.parametrize(
    "solve",
    [
        lambda M: baselines.godec(M, 6, 1500, tolerance=1e-9),
        lambda M: baselines.scaled_gradient_descent(M, 6, sparsity=0.05, tolerance=1e-9),
        lambda M: baselines.ircur(M, 6, tolerance=1e-9),
    ],
    ids=["godec", "scaledgd", "ircur"],
)
def test_solvers_told_the_rank_find_the_truth_and_leave_the_matrix_alone(solve, kind: Outliers) -> None:  # type: ignore[no-untyped-def]
    problem = _problem(kind)
    before = problem.M.copy()
    result = solve(problem.M)
    assert result.outcome is Ending.CONVERGED
    assert relative_error(result.L, problem.L) < 1e-6
    assert _is_explained(result, problem.M, 1e-8)
    np.testing.assert_array_equal(problem.M, before)


def test_ircur_works_from_rows_and_columns_it_chose() -> None:
    problem = generate(Recipe(rows=300, columns=400, rank=3, sparsity=0.05), seed=1)
    result = baselines.ircur(problem.M, 3, sampling=4.0, decay=0.8, tolerance=1e-9)
    assert relative_error(result.L, problem.L) < 1e-6


def test_scaled_gradient_descent_keeps_out_what_is_large_in_its_row_and_in_its_column() -> None:
    R = np.array([[9.0, 8.0, 0.0], [7.0, 1.0, 0.0], [0.0, 2.0, -6.0]])
    np.testing.assert_array_equal(_kept_out(R, 1 / 3), [[0.0, 8.0, 0.0], [7.0, 1.0, 0.0], [0.0, 2.0, 0.0]])


def test_compiled_sweeps_are_the_numpy_ones() -> None:
    rng = np.random.default_rng(6)
    M, L, dual = (rng.standard_normal((7, 9)) for _ in range(3))
    pairs: tuple[tuple[Any, Any], ...] = ((sweeps().clean, clean), (sweeps().multiply, multiply))
    for mine, reference in pairs:
        found = []
        for sweep in (mine, reference):
            out, own = np.empty_like(M), dual.copy()
            squared = sweep(M, L, 0.7, out) if reference is clean else sweep(M, L, own, out, 0.7, 1.6)
            found.append((squared, out, own))
        for one, other in zip(*found, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


def test_apgm_and_alm_solve_the_same_convex_problem() -> None:
    M = _problem().M
    proximal, lagrangian = baselines.apgm(M, tolerance=1e-8), baselines.alm(M)
    assert proximal.rank == lagrangian.rank
    assert relative_error(proximal.L, lagrangian.L) < 1e-3


def test_cf_pca_is_gradient_with_one_site_and_one_local_iteration() -> None:
    M = _problem().M
    settings = GradientSettings(local_iterations=1)
    run = simulate(gradient_method(GradientSolver(150, 6, rounds=20, seed=4, settings=settings)), [ArrayColumns(M)])
    result = baselines.cf_pca(M, 6, iterations=20, seed=4)
    np.testing.assert_array_equal(result.L, run.low_rank)
    assert (result.iterations, result.outcome) == (20, Ending.OUT_OF_ITERATIONS)


def test_cf_pca_comes_close_to_the_truth() -> None:
    problem = _problem()
    assert relative_error(baselines.cf_pca(problem.M, 6, iterations=150).L, problem.L) < 3e-2


def test_warm_partial_thresholding_agrees_with_the_full_one() -> None:
    rng = np.random.default_rng(2)
    A = rng.standard_normal((60, 30)) @ rng.standard_normal((30, 80)) + 0.01 * rng.standard_normal((60, 80))
    partial = Thresholding(partial=True, rng=rng)
    for _ in range(40):
        low = partial(A, 30.0)
    np.testing.assert_allclose(low.dense(), full(A).shrunk(30.0).dense(), atol=1e-6)


def test_leading_factors_are_those_of_the_full_decomposition() -> None:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((60, 5)) @ rng.standard_normal((5, 80)) + 1e-6 * rng.standard_normal((60, 80))
    np.testing.assert_allclose(leading(A, 5, rng).values, full(A).values[:5], rtol=1e-8)


def test_the_tangent_projection_is_the_dense_formula() -> None:
    rng = np.random.default_rng(5)
    Z, low = rng.standard_normal((20, 30)), leading(rng.standard_normal((20, 30)), 3, rng)
    left, right = low.U @ low.U.T, low.V @ low.V.T
    dense = left @ Z + Z @ right - left @ Z @ right
    found, following = _tangent_projection(Z, low)
    truth = full(dense)
    np.testing.assert_allclose(found.dense(), (truth.U[:, :3] * truth.values[:3]) @ truth.V[:, :3].T, atol=1e-10)
    assert following == pytest.approx(truth.values[3])


@pytest.mark.parametrize("solve", [baselines.alm, baselines.apgm])
def test_the_observer_sees_every_iterate_and_the_last_is_the_result(solve) -> None:  # type: ignore[no-untyped-def]
    seen: list[tuple[int, FloatArray, FloatArray]] = []
    result = solve(_problem().M, iterations=7, observe=lambda number, L, S: seen.append((number, L, S)))
    assert [number for number, _, _ in seen] == list(range(1, 8))
    np.testing.assert_allclose(seen[-1][1], result.L)
    np.testing.assert_allclose(seen[-1][2], result.S, atol=1e-9)
    assert result.outcome is Ending.OUT_OF_ITERATIONS


@pytest.mark.parametrize("solve", [baselines.alm, baselines.apgm, lambda M: baselines.cf_pca(M, 1, iterations=3)])
def test_a_zero_matrix_is_zero(solve) -> None:  # type: ignore[no-untyped-def]
    result = solve(np.zeros((5, 4)))
    assert not result.S.any()
    np.testing.assert_allclose(result.L, 0.0, atol=1e-12)


def test_missing_entries_and_impossible_ranks_are_refused() -> None:
    with pytest.raises(BadInput, match="NaN"):
        baselines.alm(np.full((3, 3), np.nan))
    with pytest.raises(BadInput, match="matrix"):
        baselines.apgm(np.zeros(3))
    with pytest.raises(BadInput, match="Rank 4"):
        baselines.accelerated_alternating_projections(np.ones((3, 3)), 4)
    with pytest.raises(BadInput, match="9 outliers"):
        baselines.godec(np.ones((3, 3)), 1, 9)
    with pytest.raises(BadInput, match="share of outliers"):
        baselines.scaled_gradient_descent(np.ones((3, 3)), 1, sparsity=0.6)

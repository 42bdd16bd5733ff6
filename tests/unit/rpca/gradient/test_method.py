from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from dcfpca.errors import BadInput, BadMessage
from dcfpca.rpca.column_blocks import ArrayColumns, split
from dcfpca.rpca.gradient import site as gradient_site
from dcfpca.rpca.gradient.objective import LeftFactor, Penalties, check_penalties, clipped_residual, huber_objective
from dcfpca.rpca.gradient.settings import GradientPlan, GradientSettings
from dcfpca.rpca.gradient.site import GradientFit
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import Consensus, FloatArray, Outcome, TensorMessage, Total
from dcfpca.rpca.simulate import exchange, simulate
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.synthetic import (
    Outliers,
    Recipe,
    generate,
    paper_error,
    paper_problem,
    relative_error,
    singular_value_error,
)

PENALTIES = Penalties(lambda_=0.3, rho=0.2)
EXACT = GradientSettings(
    local_iterations=1, learning_rate=0.01, lambda_=0.3, rho=0.2, inner_steps=0, inner_tolerance=1e-13
)


def _small(missing: float = 0.0) -> tuple[FloatArray, FloatArray]:
    problem = generate(Recipe(rows=20, columns=30, rank=3, sparsity=0.1, missing=missing), seed=1)
    return problem.M, np.random.default_rng(2).standard_normal((20, 3))


def _global_objective(M: FloatArray, U: FloatArray) -> float:
    factor = LeftFactor.of(U, PENALTIES)
    V, _ = factor.minimize(M, np.zeros((M.shape[1], U.shape[1])), 1e-13)
    return huber_objective(M, U, V, PENALTIES) + 0.5 * PENALTIES.rho * float(np.sum(U * U))


def _one_round(method: Method, M: FloatArray, counts: tuple[int, ...]) -> tuple[Consensus, Consensus]:
    sites = [method.site(own) for own in split(M, counts)]
    opened = method.advance(method.begin(), exchange(method, method.begin(), sites))
    return opened, method.advance(opened, exchange(method, opened, sites))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_inner_solve_is_stationary(missing: float) -> None:
    M, U = _small(missing)
    V, residual = LeftFactor.of(U, PENALTIES).minimize(M, np.zeros((30, 3)), 1e-12)
    pull = np.nan_to_num(np.clip(M - U @ V.T, -0.3, 0.3)).T @ U
    np.testing.assert_allclose(PENALTIES.rho * V, pull, atol=1e-10)
    assert residual <= 1e-12


def test_the_inner_minimum_is_below_its_neighbours() -> None:
    M, U = _small(0.2)
    V, _ = LeftFactor.of(U, PENALTIES).minimize(M, np.zeros((30, 3)), 1e-12)
    rng = np.random.default_rng(3)
    lowest = huber_objective(M, U, V, PENALTIES)
    for size in (1e-3, 1e-1):
        assert huber_objective(M, U, V + size * rng.standard_normal(V.shape), PENALTIES) > lowest


def test_one_step_in_the_metric_is_one_alternation() -> None:
    M, U = _small()
    factor, V = LeftFactor.of(U, PENALTIES), np.random.default_rng(4).standard_normal((30, 3))
    residual = M - U @ V.T
    S = residual - np.clip(residual, -0.3, 0.3)
    alternated = np.linalg.solve(U.T @ U + 0.2 * np.eye(3), U.T @ (M - S)).T
    np.testing.assert_allclose(V - factor.solve(factor.gradient(M, V)[0]), alternated, atol=1e-12)


def test_missing_entries_pull_on_nothing() -> None:
    M, U = _small(0.5)
    C = clipped_residual(M, U, np.ones((30, 3)), 0.3)
    assert (C[np.isnan(M)] == 0).all()
    assert (C[~np.isnan(M)] != 0).all()


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_one_local_iteration_is_one_global_gradient_step_by_finite_differences(missing: float) -> None:
    M, _ = _small(missing)
    method = gradient_method(GradientSolver(rows=20, width=3, rounds=5, seed=5, settings=EXACT))
    opened, after = _one_round(method, M, (30,))
    U = opened.broadcast.tensor
    slope = (U - after.broadcast.tensor) / 0.01
    rng = np.random.default_rng(6)
    for _ in range(5):
        direction = rng.standard_normal(U.shape)
        ahead, behind = (_global_objective(M, U + h * direction) for h in (1e-5, -1e-5))
        assert np.sum(slope * direction) == pytest.approx((ahead - behind) / 2e-5, rel=1e-5)


@pytest.mark.parametrize("counts", [(15, 15), (1, 29), (3, 10, 2, 15)])
def test_the_mean_over_any_split_is_the_pooled_step_divided_by_the_number_of_sites(counts: tuple[int, ...]) -> None:
    M, _ = _small(0.1)
    method = gradient_method(GradientSolver(rows=20, width=3, rounds=5, seed=5, settings=EXACT))
    opened, pooled = _one_round(method, M, (30,))
    start = opened.broadcast.tensor
    _, dealt = _one_round(method, M, counts)
    step = len(counts) * (dealt.broadcast.tensor - start)
    np.testing.assert_allclose(step, pooled.broadcast.tensor - start, rtol=1e-9, atol=1e-12)


def test_column_weights_weigh_each_site_by_its_columns() -> None:
    M, _ = _small()
    settings = GradientSettings(learning_rate=0.01, lambda_=0.3, weights="columns")
    alone = GradientSettings(learning_rate=0.01, lambda_=0.3)
    method = gradient_method(GradientSolver(rows=20, width=3, rounds=5, settings=settings))
    opened, mixed = _one_round(method, M, (10, 20))
    single = [
        gradient_method(GradientSolver(rows=20, width=3, rounds=5, settings=alone)).site(own)
        for own in split(M, (10, 20))
    ]
    first, second = (site.answer(opened).tensor for site in single)
    np.testing.assert_allclose(mixed.broadcast.tensor, (10 * first + 20 * second) / 30, rtol=1e-12)


def test_a_dropout_leaves_the_mean_of_the_survivors() -> None:
    M, _ = _small()
    method = gradient_method(GradientSolver(rows=20, width=3, rounds=5, settings=EXACT))
    sites = [method.site(own) for own in split(M, (10, 20))]
    opened = method.advance(method.begin(), exchange(method, method.begin(), sites))
    after = method.advance(opened, exchange(method, opened, sites[:1]))
    survivor = method.site(split(M, (10, 20))[0]).answer(opened)
    np.testing.assert_array_equal(after.broadcast.tensor, survivor.tensor)
    assert GradientPlan.of(after.broadcast).columns == 10


def test_the_published_problem_is_solved_below_the_published_floor() -> None:
    problem = paper_problem(500, 25, 0.05, 5, seed=0)
    settings = GradientSettings(local_iterations=5, learning_rate=0.2, lambda_=0.1)
    result = simulate(gradient_method(GradientSolver(500, 25, rounds=40, settings=settings)), problem.sites())
    assert paper_error(result.low_rank, result.outliers, problem.L, problem.S) <= 1e-6
    assert relative_error(result.low_rank, problem.L) <= 5e-3
    assert result.results[0].certificate["stationarity"] <= 1e-10
    assert result.results[0].certificate["outlier_share"] == pytest.approx(0.05, rel=0.1)


@pytest.mark.parametrize("factor", [1e-9, 1.0, 1e9])
def test_measured_settings_follow_the_scale_of_the_data(factor: float) -> None:
    counts = (40, 60, 50)
    problem = generate(Recipe(120, 150, 4, outliers=Outliers.UNIFORM, missing=0.1, counts=counts), seed=3)
    result = simulate(gradient_method(GradientSolver(120, 4, rounds=80)), split(factor * problem.M, counts))
    assert relative_error(result.low_rank, factor * problem.L) <= 2e-2


def test_a_restored_site_goes_on_as_if_nothing_had_happened() -> None:
    M, _ = _small(0.1)
    method = gradient_method(GradientSolver(rows=20, width=3, rounds=5))
    columns = ArrayColumns(M)
    site, other = method.site(columns), method.site(columns)
    first = method.advance(method.begin(), exchange(method, method.begin(), [site]))
    second = method.advance(first, exchange(method, first, [site]))
    other.restore(site.snapshot())
    np.testing.assert_array_equal(site.answer(second).flat(), other.answer(second).flat())


def test_a_snapshot_of_other_data_is_refused() -> None:
    M, _ = _small()
    method = gradient_method(GradientSolver(rows=20, width=3, rounds=5))
    with pytest.raises(BadMessage):
        method.site(ArrayColumns(M[:, :9])).restore(method.site(ArrayColumns(M)).snapshot())


def test_finishing_does_not_disturb_the_run() -> None:
    M, _ = _small()
    method = gradient_method(GradientSolver(rows=20, width=3, rounds=4))
    plain = simulate(method, [ArrayColumns(M)])

    def look(now: Consensus, sites: Sequence[Site]) -> None:
        for site in sites:
            list(site.finish(now))

    watched = simulate(method, [ArrayColumns(M)], look)
    np.testing.assert_array_equal(plain.low_rank, watched.low_rank)


def test_divergence_keeps_the_last_finite_consensus() -> None:
    M, _ = _small()
    settings = GradientSettings(learning_rate=1e200, lambda_=0.3, decay="constant")
    result = simulate(
        gradient_method(GradientSolver(rows=20, width=3, rounds=50, settings=settings)), split(M, (10, 20))
    )
    assert result.consensus.outcome is Outcome.DIVERGED
    assert np.isfinite(result.consensus.broadcast.tensor).all()
    assert np.isfinite(result.low_rank).all()


def test_a_non_finite_sum_is_divergence_not_a_broadcast() -> None:
    M, _ = _small()
    method = gradient_method(GradientSolver(rows=20, width=3, rounds=5))
    opened, _ = _one_round(method, M, (30,))
    poisoned = Total(TensorMessage(np.full((20, 3), np.nan), np.zeros(method.stage("fit").up.scalars)), 1)
    after = method.advance(opened, poisoned)
    assert after.outcome is Outcome.DIVERGED
    np.testing.assert_array_equal(after.broadcast.tensor, opened.broadcast.tensor)


def test_a_tolerance_stops_the_run_and_none_does_not() -> None:
    M, _ = _small()
    stopped = simulate(gradient_method(GradientSolver(rows=20, width=3, rounds=200, tolerance=1e-2)), [ArrayColumns(M)])
    assert stopped.consensus.outcome is Outcome.CONVERGED
    assert [progress.change < 1e-2 for progress in stopped.history[-2:]] == [True, True]
    through = simulate(gradient_method(GradientSolver(rows=20, width=3, rounds=7)), [ArrayColumns(M)])
    assert through.consensus.outcome is Outcome.OUT_OF_ROUNDS
    assert through.consensus.round == 7


def test_penalties_that_allow_only_zero_are_refused_with_the_reason() -> None:
    check_penalties(Penalties(lambda_=0.1, rho=1.0), 10, 10)
    with pytest.raises(BadInput, match="gradient is nonzero unless U = 0"):
        check_penalties(Penalties(lambda_=0.1, rho=1.01), 10, 10)
    M, _ = _small()
    with pytest.raises(BadInput, match="20 × 30"):
        simulate(gradient_method(GradientSolver(20, 3, 5, settings=GradientSettings(lambda_=1e-4))), [ArrayColumns(M)])


@pytest.mark.parametrize(
    "changes",
    [
        {"local_iterations": 0},
        {"learning_rate": 0.0},
        {"lambda_": -1.0},
        {"rho": float("inf")},
        {"inner_steps": -1},
        {"inner_tolerance": 0.0},
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(BadInput):
        GradientSettings(**changes)  # type: ignore[arg-type]


def test_a_rank_that_does_not_fit_is_refused() -> None:
    with pytest.raises(BadInput, match="20 rows"):
        gradient_method(GradientSolver(rows=20, width=21, rounds=5))
    with pytest.raises(BadInput, match="30 columns"):
        simulate(gradient_method(GradientSolver(rows=40, width=31, rounds=5)), [ArrayColumns(np.ones((40, 30)))])


def test_wrong_rows_and_infinite_values_are_refused() -> None:
    method = gradient_method(GradientSolver(rows=20, width=3, rounds=5))
    with pytest.raises(BadInput, match="21 rows"):
        method.site(ArrayColumns(np.zeros((21, 5))))
    with pytest.raises(BadInput, match="infinite"):
        simulate(method, [ArrayColumns(np.full((20, 5), np.inf))])


@pytest.mark.parametrize("data", [np.zeros((20, 5)), np.full((20, 5), np.nan), np.eye(20, 5), np.ones((20, 5))])
def test_degenerate_data_gives_a_finite_answer(data: FloatArray) -> None:
    result = simulate(
        gradient_method(GradientSolver(rows=20, width=2, rounds=5)), [ArrayColumns(data), ArrayColumns(data[:, :1])]
    )
    assert np.isfinite(result.low_rank).all()
    assert result.outliers.shape == (20, 6)


def test_a_local_step_needs_far_less_memory_than_the_data() -> None:
    M = np.random.default_rng(8).standard_normal((1000, 2000))
    method = gradient_method(
        GradientSolver(rows=1000, width=5, rounds=2, settings=GradientSettings(local_iterations=1))
    )
    sites = [method.site(ArrayColumns(M))]
    opened = method.advance(method.begin(), exchange(method, method.begin(), sites))
    tracemalloc.start()
    sites[0].answer(opened)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.5 * M.nbytes


def test_an_upper_bound_of_the_rank_does_not_spoil_the_singular_values() -> None:
    problem = paper_problem(200, 10, 0.05, 5, seed=0)
    result = simulate(gradient_method(GradientSolver(200, 20, rounds=100)), problem.sites())
    found, truth = (
        np.linalg.svd(matrix, compute_uv=False).astype(np.float64) for matrix in (result.low_rank, problem.L)
    )
    assert singular_value_error(found, truth, 10) < 0.0286  # as published


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_model_has_the_singular_values_of_the_consensus_and_the_sites_factors(missing: float) -> None:
    M, _ = _small(missing)
    method = gradient_method(GradientSolver(rows=20, width=5, rounds=1))
    sites = [method.site(own) for own in split(M, (4, 26))]
    opened = method.advance(method.begin(), exchange(method, method.begin(), sites))
    done = method.advance(opened, exchange(method, opened, sites))
    V = np.concatenate([site.snapshot()["fit/V"] for site in sites]).astype(float)
    model = method.model(done)
    truth = np.linalg.svd(model["U"] @ V.T, compute_uv=False)
    np.testing.assert_allclose(model["singular_values"], truth[:5], rtol=1e-9)


def test_the_models_singular_values_are_those_of_the_result_once_the_run_has_settled() -> None:
    problem = paper_problem(120, 6, 0.05, 4, seed=0)
    method = gradient_method(GradientSolver(120, 12, rounds=80))
    run = simulate(method, problem.sites())
    truth = np.linalg.svd(run.low_rank, compute_uv=False).astype(np.float64)
    assert singular_value_error(method.model(run.consensus)["singular_values"], truth, 6) < 5e-3


def test_the_width_of_blocks_changes_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = paper_problem(60, 3, 0.05, 1, 0)
    (columns,) = problem.sites()

    def sums() -> list[FloatArray]:
        fitted = GradientFit(columns, 6, GradientSettings(lambda_=0.1, learning_rate=0.01))
        U = np.random.default_rng(1).standard_normal((60, 6))
        return [fitted.fit(U + 0.01 * step, Penalties(0.1, 0.1)).slope for step in range(3)]

    whole = sums()
    monkeypatch.setattr(gradient_site, "BLOCK_BYTES", 1)  # then blocks are a quarter as wide as U
    for one, other in zip(whole, sums(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10 * float(np.abs(one).max()))

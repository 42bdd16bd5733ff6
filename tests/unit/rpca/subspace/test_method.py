"""`subspace` by known construction: exact recovery, rank found, the split does not matter."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import split
from dcfpca.rpca.method import Consensus, Outcome
from dcfpca.rpca.simulate import Simulation, collect, exchange, simulate
from dcfpca.rpca.stage import Site
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.round_plan import RoundPlan
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Outliers, Problem, Recipe, generate, relative_error


def solve(problem: Problem, width: int, fixed_rank: bool, counts: tuple[int, ...] = ()) -> Simulation:
    method = subspace_method(SubspaceSolver(problem.M.shape[0], width, 150, 1e-11, fixed_rank=fixed_rank))
    return simulate(method, split(problem.M, counts or problem.counts))


@pytest.mark.parametrize("fixed_rank", [True, False])
@pytest.mark.parametrize("kind", list(Outliers))
def test_every_kind_of_outlier_is_taken_out_exactly(kind: Outliers, fixed_rank: bool) -> None:
    problem = generate(Recipe(150, 150, 7, 0.05, kind, counts=(50, 50, 50)), 3)
    run = solve(problem, 7 if fixed_rank else 14, fixed_rank)
    assert run.consensus.outcome is Outcome.CONVERGED
    assert run.consensus.progress.rank == 7
    assert relative_error(run.low_rank, problem.L) <= 1e-9


FEW_STRONG_DIRECTIONS = (
    (Recipe(300, 100, 3, 0.02, condition=20.0, counts=(50, 50)), 736939776),
    (Recipe(150, 300, 4, 0.02, Outliers.ONE_SIDED, condition=20.0, counts=(30,) * 10), 813564156),
    (Recipe(200, 600, 6, 0.05, Outliers.GAUSSIAN, condition=20.0, counts=(60,) * 10), 730640702),
    (Recipe(100, 200, 3, 0.02, Outliers.UNIFORM, third=True, counts=(70, 70, 60)), 687004989),
    (Recipe(150, 100, 3, 0.1, Outliers.ONE_SIDED, third=True, counts=(10,) * 10), 984801397),
)


@pytest.mark.parametrize(("recipe", "seed"), FEW_STRONG_DIRECTIONS)
@pytest.mark.parametrize("times", [1, 2], ids=["rank", "bound"])
def test_large_entries_of_few_strong_directions_are_not_taken_for_outliers(
    times: int, recipe: Recipe, seed: int
) -> None:
    """Draws on which rows were locked, because the first threshold knew only the median entry."""
    problem = generate(recipe, seed)
    run = solve(problem, times * problem.rank, fixed_rank=times == 1)
    assert relative_error(run.low_rank, problem.L) <= 1e-8
    assert run.consensus.progress.rank == problem.rank


def test_what_the_tolerance_leaves_of_l_is_not_taken_for_outliers() -> None:
    """A run ends with L known to the tolerance, where most residuals can be far smaller still."""
    problem = generate(Recipe(300, 100, 3, 0.02, condition=20.0, counts=(50, 50)), 2)
    run = simulate(subspace_method(SubspaceSolver(300, 6, 150, 1e-9, fixed_rank=False)), problem.sites())
    assert run.consensus.outcome is Outcome.CONVERGED
    assert np.array_equal(run.outliers.toarray() != 0.0, problem.S != 0.0)


@pytest.mark.parametrize("scale", [1.0, 3.0, 7.0])
def test_the_scale_of_the_data_decides_nothing(scale: float) -> None:
    """The opening exchange counts by powers of sixteen; the first round makes up for what that does not tell."""
    problem = generate(Recipe(150, 150, 7, 0.05, Outliers.UNIFORM, counts=(50, 50, 50)), 3)
    run = solve(replace(problem, M=scale * problem.M, L=scale * problem.L, S=scale * problem.S), 7, fixed_rank=True)
    assert relative_error(run.low_rank, scale * problem.L) <= 1e-9
    assert run.consensus.round <= 15


def test_a_direction_that_the_first_sketch_hardly_caught_is_found_where_the_rank_is_given() -> None:
    """Of 160 draws of this kind, the one whose last direction once rested while a row was locked out."""
    problem = generate(Recipe(300, 300, 15, 0.05, Outliers.UNIFORM, counts=(30,) * 10), 2)
    run = solve(problem, 15, fixed_rank=True)
    assert relative_error(run.low_rank, problem.L) <= 1e-9
    assert not any(result.certificate["rows_apart"] for result in run.results)


@pytest.mark.parametrize("kind", [Outliers.IMPULSE, Outliers.UNIFORM])
@pytest.mark.parametrize("tolerance", [1e-6, 1e-9, 1e-11])
@pytest.mark.parametrize("width", [10, 20])
def test_a_run_that_converges_fast_ends_within_its_tolerance_of_the_answer(
    width: int, tolerance: float, kind: Outliers
) -> None:
    problem = generate(Recipe(200, 200, 10, 0.05, kind, counts=(50,) * 4), 4)
    run = simulate(subspace_method(SubspaceSolver(200, width, 60, tolerance, fixed_rank=width == 10)), problem.sites())
    assert run.consensus.outcome is Outcome.CONVERGED
    assert relative_error(run.low_rank, problem.L) <= tolerance
    np.testing.assert_array_equal(run.outliers.toarray() != 0.0, problem.S != 0.0)


@pytest.mark.parametrize(("width", "usual", "most"), [(25, 1.7, 2.0), (50, 1.95, 2.75)], ids=["rank", "bound"])
def test_a_local_step_and_a_result_of_a_small_site_take_little_more_than_its_matrix(
    width: int, usual: float, most: float
) -> None:
    """Beside the matrix itself; an update is half as large as it with the rank given, and as large with the bound."""
    problem = generate(Recipe(500, 500, 25, 0.05, counts=(50,) * 10), 0)
    method = subspace_method(SubspaceSolver(500, width, 20, 1e-9, fixed_rank=width == 25))
    sites, watched = [method.site(own) for own in problem.sites()], method.site(problem.sites()[0])
    consensus, taken = method.begin(), []
    while consensus.outcome is None:
        taken.append(_peak_bytes(partial(watched.answer, consensus)))
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    taken.append(_peak_bytes(partial(collect, watched, consensus)))
    matrix = 8 * 500 * 50
    assert np.median(taken) <= usual * matrix
    assert max(taken) <= most * matrix  # with the bound, in the rounds that update all directions


def _peak_bytes(work: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("rank_share", "sparsity"), [(0.1, 0.3), (0.2, 0.2)])
@pytest.mark.parametrize("factor", [1.0, 1.3, 2.0])
def test_hard_cells_are_exact_with_the_rank_given_or_bounded(rank_share: float, sparsity: float, factor: float) -> None:
    problem = generate(Recipe(200, 200, int(200 * rank_share), sparsity, counts=(50,) * 4), 1)
    run = solve(problem, round(problem.rank * factor), factor == 1.0)
    assert run.consensus.progress.rank == problem.rank
    assert relative_error(run.low_rank, problem.L) <= 1e-8


@pytest.mark.parametrize("recipe", [{"condition": 100.0}, {"third": True}, {"missing": 0.2}], ids=str)
@pytest.mark.parametrize("fixed_rank", [True, False])
def test_spread_strengths_partial_sites_and_gaps_are_recovered(recipe: dict[str, float], fixed_rank: bool) -> None:
    problem = generate(Recipe(200, 200, 10, 0.1, Outliers.UNIFORM, counts=(20,) * 10, **recipe), 5)  # type: ignore[arg-type]
    run = solve(problem, 10 if fixed_rank else 20, fixed_rank)
    assert relative_error(run.low_rank, problem.L) <= 1e-8


@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("fixed_rank", [True, False])
def test_the_split_over_sites_does_not_matter(noise: float, fixed_rank: bool) -> None:
    problem = generate(Recipe(80, 100, 4, 0.1, noise=noise, missing=0.1, counts=(100,)), 2)
    width = 4 if fixed_rank else 8
    pooled = solve(problem, width, fixed_rank)
    for counts in [(10,) * 10, (2,) * 50, (1, 96, 1, 2)]:
        dealt = solve(problem, width, fixed_rank, counts)
        assert relative_error(dealt.low_rank, pooled.low_rank) <= 1e-8
        assert dealt.consensus.round == pooled.consensus.round


def test_noise_is_met_at_the_floor_of_an_oracle_that_knows_the_outliers() -> None:
    problem = generate(Recipe(200, 200, 5, 0.05, noise=0.01, counts=(50,) * 4), 4)
    clean = np.where(problem.S == 0.0, problem.M, np.nan)
    L = np.zeros_like(clean)
    for _ in range(100):  # hard-impute with the true support: what least squares can do at best
        P, s, Q = np.linalg.svd(np.where(np.isnan(clean), L, clean), full_matrices=False)
        L = (P[:, :5] * s[:5]) @ Q[:5]
    oracle = relative_error(L, problem.L)
    for width, fixed_rank in [(5, True), (10, False)]:
        run = solve(problem, width, fixed_rank)
        assert run.consensus.progress.rank == 5
        assert relative_error(run.low_rank, problem.L) <= 1.2 * oracle


def test_the_certificate_says_that_no_pass_would_move_the_result() -> None:
    problem = generate(Recipe(100, 90, 3, 0.05, noise=0.01, counts=(45, 45)), 0)
    run = solve(problem, 3, True)
    for site, result in zip(problem.sites(), run.results, strict=True):
        assert result.certificate["stationarity"] <= 1e-8
        rebuilt = result.L + result.S.toarray()
        assert np.abs(rebuilt - site.array).max() <= 4 * run.consensus.progress.threshold
        np.testing.assert_allclose(result.L, run.consensus.broadcast.tensor @ result.V.T, atol=1e-12)


def test_the_model_has_the_singular_values_of_the_low_rank_part() -> None:
    problem = generate(Recipe(120, 100, 6, 0.05, counts=(40, 60)), 1)
    method = subspace_method(SubspaceSolver(120, 12, 150, 1e-11, fixed_rank=False))
    run = simulate(method, problem.sites())
    model = method.model(run.consensus)
    truth = np.linalg.svd(problem.L, compute_uv=False)[:6]
    np.testing.assert_allclose(model["singular_values"], truth, rtol=1e-8)
    np.testing.assert_allclose(model["U"].T @ model["U"], np.eye(6), atol=1e-12)


def test_a_restored_site_goes_on_to_the_same_bytes() -> None:
    problem = generate(Recipe(60, 50, 3, 0.05, counts=(25, 25)), 0)
    method = subspace_method(SubspaceSolver(60, 3, 50, 1e-9))
    told: list[Consensus] = []
    simulate(method, problem.sites(), lambda consensus, _: told.append(consensus))
    steady, other = method.site(problem.sites()[0]), method.site(problem.sites()[0])
    for number in (1, 2, 3):
        steady.answer(told[number - 1])
    other.restore(steady.snapshot())
    expected, found = steady.answer(told[3]), other.answer(told[3])
    np.testing.assert_array_equal(expected.flat(), found.flat())


def test_a_site_may_miss_rounds_and_come_back() -> None:
    problem = generate(Recipe(100, 100, 4, 0.05, counts=(25,) * 4), 7)
    method = subspace_method(SubspaceSolver(100, 4, 150, 1e-11))
    sites = [method.site(own) for own in problem.sites()]
    consensus = method.begin()
    while consensus.outcome is None:
        present = [s for k, s in enumerate(sites) if not (k == 1 and consensus.round in (0, 1, 3, 4, 5))]
        consensus = method.advance(consensus, exchange(method, consensus, present))
    L = np.concatenate([collect(site, consensus).L for site in sites], axis=1)
    assert relative_error(L, problem.L) <= 1e-8


def test_a_result_that_is_no_longer_finite_ends_the_run_instead_of_spreading() -> None:
    method = subspace_method(SubspaceSolver(4, 2, 10, 1e-9))
    site = method.site(split(np.eye(4), (4,))[0])
    consensus = method.begin()
    consensus = method.advance(consensus, exchange(method, consensus, [site]))
    total = exchange(method, consensus, [site])
    total.sums.tensor[0, 0] = np.inf
    after = method.advance(consensus, total)
    assert after.outcome is Outcome.DIVERGED
    assert np.isfinite(after.broadcast.tensor).all()


def test_a_rank_that_does_not_fit_is_refused_with_the_range() -> None:
    with pytest.raises(BadInput, match="Rank 9 does not fit 4 rows"):
        subspace_method(SubspaceSolver(4, 9, 10, 1e-9))


def test_a_gap_in_the_singular_values_spares_the_other_directions_and_costs_no_round() -> None:
    problem = generate(Recipe(150, 150, 7, 0.05, counts=(50, 50, 50)), 3)
    narrow: dict[float, list[bool]] = {}

    def note_flag(flags: list[bool], now: Consensus, _: Sequence[Site]) -> None:
        flags.append(RoundPlan.of(now.broadcast).narrow)

    for gap in (2.5, np.inf):
        method = subspace_method(
            SubspaceSolver(150, 14, 60, 1e-11, fixed_rank=False, settings=SubspaceSettings(narrow_gap=gap))
        )
        flags = narrow[gap] = []
        run = simulate(method, problem.sites(), partial(note_flag, flags))
        assert relative_error(run.low_rank, problem.L) <= 1e-9
    assert all(narrow[2.5][1:5])  # in the broadcasts after rounds 1 to 4
    assert not any(narrow[np.inf][:3])
    assert len(narrow[2.5]) <= len(narrow[np.inf]) + 1


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("times", [10, 50])
@pytest.mark.parametrize("width", [15, 30])
def test_what_lies_below_a_direction_many_times_as_strong_is_found(seed: int, times: int, width: int) -> None:
    rng = np.random.default_rng(seed)
    strengths = np.r_[1.0, np.full(14, 1.0 / times)]
    L = (rng.standard_normal((300, 15)) * strengths) @ rng.standard_normal((15, 300))
    S = (rng.random(L.shape) < 0.05) * rng.choice([-1, 1], L.shape) * 300 * rng.random(L.shape)
    run = simulate(
        subspace_method(SubspaceSolver(300, width, 60, 1e-11, fixed_rank=width == 15)), split(L + S, (100,) * 3)
    )
    assert run.consensus.outcome is Outcome.CONVERGED
    assert run.consensus.progress.rank == 15
    assert relative_error(run.low_rank, L) <= 1e-9

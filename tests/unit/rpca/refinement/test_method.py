"""Whole runs with closing rounds, on data whose truth is known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from dcfpca.errors import BadMessage
from dcfpca.rpca.column_blocks import ArrayColumns, split
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import Consensus, FloatArray, Outcome
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import CHECK, CLOSING, ClosingPlan, FitEnding
from dcfpca.rpca.refinement.closing_stage import CURVE
from dcfpca.rpca.scaling import in_robust_units
from dcfpca.rpca.simulate import Simulation, collect, exchange, simulate
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver

MOST_ROUNDS = 40


def _method(rows: int, width: int, fixed: bool) -> Method:
    fit = subspace_method(SubspaceSolver(rows, width, 100, 1e-9, fixed_rank=fixed))
    return with_closing_rounds(fit, fixed_rank=fixed)


def _low_rank(rows: int, columns: int, rank: int, noise: float, share: float, seed: int = 0) -> tuple[FloatArray, ...]:
    """M = L + S + noise; returned with L and S."""
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
    hit = rng.random(L.shape) < share
    S = np.where(hit, rng.uniform(10.0, 30.0, L.shape) * rng.choice([-1.0, 1.0], L.shape), 0.0)
    return L + S + noise * rng.standard_normal(L.shape), L, S


def _plan(run: Simulation) -> ClosingPlan:
    return ClosingPlan.of(run.consensus.broadcast)


@pytest.mark.parametrize(("width", "fixed"), [(4, True), (8, False)])
def test_exact_data_keeps_the_exact_answer_and_its_rank(width: int, fixed: bool) -> None:
    M, L, S = _low_rank(60, 120, 4, noise=0.0, share=0.05)
    run = simulate(_method(60, width, fixed), split(M, (50, 70)))
    assert _plan(run).ending is FitEnding.EXACT
    assert _plan(run).rank == 4
    assert np.abs(run.low_rank - L).max() < 1e-7
    np.testing.assert_array_equal(run.outliers.toarray() != 0.0, S != 0.0)
    assert _plan(run).verdict[0] > 0.9  # the hidden entries are predicted
    assert list(run.consensus.memory[CURVE][:, 0]) == [0, 4], "no error is claimed of ranks that were not tried"


@pytest.mark.parametrize("noise", [0.01, 0.3])
def test_noisy_data_ends_at_rest_with_the_rank_found_and_errors_at_the_floor(noise: float) -> None:
    M, L, S = _low_rank(40, 600, 3, noise=noise, share=0.05)
    run = simulate(_method(40, 10, fixed=False), split(M, (200, 400)))
    assert run.consensus.outcome is Outcome.CONVERGED
    assert run.consensus.round <= MOST_ROUNDS
    assert _plan(run).rank == 3
    freedom = 3 * (40 + 600) / (40 * 600)
    assert np.sqrt(np.mean((run.low_rank - L) ** 2)) < 1.5 * noise * np.sqrt(freedom)
    flagged, hit = run.outliers.toarray() != 0.0, S != 0.0
    assert np.count_nonzero(flagged & ~hit) <= 0.02 * np.count_nonzero(flagged)
    assert np.count_nonzero(flagged & hit) >= 0.98 * np.count_nonzero(hit)


@pytest.mark.slow
def test_pure_noise_around_a_low_rank_part_is_hardly_flagged() -> None:
    M, _, _ = _low_rank(30, 6000, 2, noise=0.5, share=0.0)
    run = simulate(_method(30, 10, fixed=False), [ArrayColumns(M)])
    assert run.outliers.nnz <= 0.012 * M.size
    assert np.mean(run.results[0].p_values < 0.05) <= 1.2 * 0.05


def test_data_without_structure_has_rank_zero_and_the_medians_as_its_normal_part() -> None:
    rng = np.random.default_rng(3)
    M = rng.standard_normal((13, 800)) * 10.0 ** rng.uniform(-1, 2, (13, 1)) + 50.0
    run = simulate(_method(13, 6, fixed=False), [ArrayColumns(M)])
    assert _plan(run).rank == 0
    off = np.abs(run.low_rank - np.median(M, axis=1, keepdims=True)).max(axis=1)
    assert (off < 0.1 * M.std(axis=1)).all()


def test_the_split_changes_nothing_of_what_sites_share() -> None:
    M, _, _ = _low_rank(20, 300, 3, noise=0.2, share=0.05)
    M[4] = np.round(M[4])  # discrete values lie on edges of bins
    M[7, ::9] = np.nan
    whole = simulate(_method(20, 8, fixed=False), [ArrayColumns(M)])
    parts = simulate(_method(20, 8, fixed=False), split(M, (13, 187, 100)))
    assert whole.consensus.round == parts.consensus.round
    np.testing.assert_allclose(whole.low_rank, parts.low_rank, atol=1e-9)
    for shared in ("knots", "mean", "above", "below", "tails", "cut"):  # flags are by each site's own view
        one, other = (getattr(_plan(run).calibration, shared) for run in (whole, parts))
        np.testing.assert_allclose(one, other, atol=1e-9)
    np.testing.assert_allclose(_plan(whole).null_scale, _plan(parts).null_scale)
    np.testing.assert_allclose(whole.consensus.memory[CURVE], parts.consensus.memory[CURVE], atol=1e-9)


def test_more_rounds_than_at_rest_would_change_less_than_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    M, _, _ = _low_rank(20, 400, 3, noise=0.3, share=0.05)
    ended = simulate(_method(20, 3, fixed=True), [ArrayColumns(M)])
    monkeypatch.setattr("dcfpca.rpca.refinement.refine.REST", 0.0)
    monkeypatch.setattr("dcfpca.rpca.refinement.refine.REST_OF_ERROR", 0.0)
    monkeypatch.setattr("dcfpca.rpca.refinement.refine.MOST_ROUNDS", 200)
    long = simulate(_method(20, 3, fixed=True), [ArrayColumns(M)])
    moved = np.sqrt(np.mean((ended.low_rank - long.low_rank) ** 2, axis=1)) / _plan(ended).noise
    assert moved.max() < 0.1
    assert (
        np.count_nonzero((ended.outliers.toarray() != long.outliers.toarray()) & (ended.outliers.toarray() == 0.0)) <= 2
    )


def test_features_that_hold_nothing_do_not_spoil_the_others() -> None:
    M, _, _ = _low_rank(13, 900, 2, noise=0.3, share=0.0, seed=5)
    M[3], M[5], M[6] = M[3] > 0, 7.0, M[6] > 2.0
    run = simulate(_method(13, 12, fixed=False), [ArrayColumns(M)])
    low, high = M.min(axis=1, keepdims=True), M.max(axis=1, keepdims=True)
    margin = (high - low) + 0.01 * np.abs(high)
    assert ((run.low_rank >= low - margin) & (run.low_rank <= high + margin)).all()
    assert (np.count_nonzero(run.outliers.toarray(), axis=1) <= 0.2 * 900).all()


def test_gradient_keeps_its_own_answer_and_gets_flags_and_a_null() -> None:
    M, L, S = _low_rank(60, 200, 3, noise=0.01, share=0.05)
    inner = gradient_method(GradientSolver(60, 3, 120, 0.0))
    run = simulate(with_closing_rounds(inner, refines=False), split(M, (100, 100)))
    plain = simulate(inner, split(M, (100, 100)))
    assert _plan(run).ending is FitEnding.KEPT
    assert np.linalg.norm(run.low_rank - L) < 2.0 * np.linalg.norm(plain.low_rank - L)
    flagged = run.outliers.toarray() != 0.0
    assert np.count_nonzero(flagged & (S != 0.0)) > 0.9 * np.count_nonzero(S)


def test_a_site_goes_on_from_its_snapshot_in_every_stage() -> None:
    M, _, _ = _low_rank(20, 200, 3, noise=0.2, share=0.05)
    method = _method(20, 6, fixed=False)
    site, other = method.site(ArrayColumns(M)), method.site(ArrayColumns(M))
    consensus, stages = method.begin(), set()
    while consensus.outcome is None:
        other.restore(site.snapshot())
        stages.add(consensus.stage)
        total = exchange(method, consensus, [site])
        again = exchange(method, consensus, [other])
        np.testing.assert_array_equal(total.sums.tensor, again.sums.tensor)
        np.testing.assert_array_equal(total.sums.scalars, again.sums.scalars)
        consensus = method.advance(consensus, total)
    assert stages == {"open", "fit", *CLOSING}


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_advancing_changes_no_number_of_the_consensus_it_starts_from(noise: float) -> None:
    M, _, _ = _low_rank(20, 200, 3, noise=noise, share=0.05)
    method = _method(20, 6, fixed=False)
    site, consensus = method.site(ArrayColumns(M)), method.begin()
    while consensus.outcome is None:
        before = consensus.broadcast.flat()
        after = method.advance(consensus, exchange(method, consensus, [site]))
        np.testing.assert_array_equal(consensus.broadcast.flat(), before)
        consensus = after


def test_a_run_that_is_finished_before_its_null_flags_and_scores_nothing() -> None:
    M, _, _ = _low_rank(20, 200, 3, noise=0.2, share=0.05)
    method = _method(20, 3, fixed=True)
    site, consensus, stages = method.site(ArrayColumns(M)), method.begin(), set()
    while consensus.outcome is None:
        stages.add(consensus.stage)
        if consensus.stage in CLOSING and consensus.stage != CHECK:  # which comes after the null
            blocks = list(site.finish(consensus))
            assert all(block.scores is None and block.S.nnz == 0 for block in blocks)
        consensus = method.advance(consensus, exchange(method, consensus, [site]))
    assert stages >= set(CLOSING)
    assert all(block.scores is not None and block.S.nnz for block in site.finish(consensus))


def test_scaled_runs_give_results_and_centre_in_the_units_of_the_data() -> None:
    M, L, _ = _low_rank(15, 500, 2, noise=0.1, share=0.05)
    units = 10.0 ** np.random.default_rng(1).uniform(-2, 3, (15, 1))
    method = in_robust_units(_method(15, 6, fixed=False))
    run = simulate(method, [ArrayColumns(units * M + 5.0 * units)])
    assert np.sqrt(np.mean((run.low_rank / units - 5.0 - L) ** 2)) < 0.1
    centre = method.model(run.consensus)["centre"]
    assert (np.abs(centre / units[:, 0] - 5.0) < 1.0).all()


@pytest.mark.parametrize("fixed", [True, False])
def test_on_exact_data_a_run_ends_within_three_rounds_of_meeting_its_tolerance(fixed: bool) -> None:
    M, L, _ = _low_rank(100, 100, 5, noise=0.0, share=0.05)
    met = []

    def watch(consensus: Consensus, sites: Sequence[Site]) -> None:
        found = collect(sites[0], consensus).L if consensus.round else 0.0
        if np.linalg.norm(found - L) < 1e-9 * np.linalg.norm(L):
            met.append(consensus.round)

    run = simulate(_method(100, 5 if fixed else 8, fixed), [ArrayColumns(M)], watch)
    assert run.consensus.outcome is Outcome.CONVERGED
    assert run.consensus.round <= met[0] + 3


@pytest.mark.parametrize("covariance", [True, False])
def test_a_run_without_covariance_has_no_round_that_could_ask_for_it(covariance: bool) -> None:
    M, wrong = _table_with_errors()
    fit = subspace_method(SubspaceSolver(M.shape[0], 4, 100, 1e-9))
    method = with_closing_rounds(fit, fixed_rank=False, covariance=covariance)
    asked = {stage.name for stage in method.stages}
    assert ({"shape", "covariance", "check"} <= asked) is covariance
    if not covariance:
        with pytest.raises(BadMessage, match="no stage 'covariance'"):
            method.stage("covariance")
    run = simulate(method, split(M, (200, 200)))
    flagged = np.concatenate([result.S.toarray() for result in run.results], axis=1) != 0.0
    assert flagged[wrong].mean() > 0.95
    verdict = method.verdict(run.consensus)
    assert verdict is not None
    assert verdict.checked is covariance


def _table_with_errors() -> tuple[FloatArray, NDArray[np.bool_]]:
    rng = np.random.default_rng(8)
    M = rng.standard_normal((20, 2)) @ rng.standard_normal((2, 400)) + 0.3 * rng.standard_normal((20, 400))
    wrong = rng.random(M.shape) < 0.01
    return np.where(wrong, M + 12.0, M), wrong

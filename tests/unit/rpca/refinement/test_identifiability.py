"""'Exact' is said only where no other split explains the data as well; nothing that cannot be divided by crashes."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.column_blocks import equal_counts, split
from dcfpca.rpca.method import FloatArray, Verdict
from dcfpca.rpca.refinement.closing import with_closing_rounds
from dcfpca.rpca.refinement.closing_plan import ClosingPlan, FitEnding
from dcfpca.rpca.refinement.identifiability import (
    features_of_block,
    local_features,
    samples_without,
    undetermined_share,
)
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Recipe, generate, relative_error

ROWS, COLUMNS, BOUND = 100, 120, 8


def _run(M: FloatArray, bound: int = BOUND) -> tuple[ClosingPlan, Verdict]:
    rows = M.shape[0]
    fit = subspace_method(SubspaceSolver(rows, bound, 100, 1e-9, fixed_rank=False))
    method = with_closing_rounds(fit, fixed_rank=False)
    run = simulate(method, split(M, equal_counts(M.shape[1], 4)))
    verdict = method.verdict(run.consensus, ())
    assert verdict is not None
    return ClosingPlan.of(run.consensus.broadcast), verdict


def _exact(rng: np.random.Generator) -> FloatArray:
    L = rng.standard_normal((ROWS, 3)) @ rng.standard_normal((3, COLUMNS))
    return L + np.where(rng.random(L.shape) < 0.03, rng.uniform(-100.0, 100.0, L.shape), 0.0)


def test_scattered_outliers_leave_one_split() -> None:
    plan, verdict = _run(_exact(np.random.default_rng(0)))
    assert plan.ending is FitEnding.EXACT
    assert verdict.sound
    assert verdict.sentence.startswith("Exact: rank 3")


def test_a_feature_or_samples_that_are_outliers_throughout_leave_several() -> None:
    rng = np.random.default_rng(0)
    by_row, by_column = _exact(rng), _exact(rng)
    by_row[7] = 20.0 * rng.standard_normal(COLUMNS)
    by_column[:, 9:17] = 20.0 * rng.standard_normal((ROWS, 8))
    for M, said in ((by_row, "feature 7"), (by_column, "8 samples")):
        plan, verdict = _run(M)
        assert plan.ending is FitEnding.EXACT
        assert not verdict.sound
        assert "so do other splits" in verdict.sentence
        assert said in verdict.sentence


def test_a_direction_on_few_features_is_found_in_any_basis_of_its_span() -> None:
    rng = np.random.default_rng(3)
    factors = rng.standard_normal((ROWS, 4))
    factors[:, 2] = 0.0
    factors[[5, 40, 41], 2] = 1.0, -2.0, 0.5
    basis = np.linalg.qr(factors @ rng.standard_normal((4, 4)))[0]
    assert local_features(basis).tolist() == [5, 40, 41]
    assert local_features(np.linalg.qr(rng.standard_normal((ROWS, 4)))[0]).size == 0
    assert local_features(np.zeros((ROWS, 0))).size == 0


def test_a_direction_that_two_samples_alone_have_leaves_several() -> None:
    rng = np.random.default_rng(2)
    pattern = 10.0 * rng.standard_normal((ROWS, 1))
    M = _exact(rng)
    M[:, [3, 77]] += pattern * [1.0, -2.0]
    plan, verdict = _run(M)
    assert plan.ending is FitEnding.EXACT
    assert plan.rank > 3  # at rank 3 they would be outliers, which so few samples are not told to be
    assert "so do other splits" in verdict.sentence
    assert "a direction rests on few samples alone" in verdict.sentence


BLOCKS = [(0.15, 0.15), (0.2, 0.4), (0.4, 0.2), (0.4, 0.4), (1.0, 0.2), (0.2, 1.0)]


@pytest.mark.parametrize(("features", "samples"), BLOCKS)
@pytest.mark.parametrize("alike", [True, False])
def test_a_block_of_outliers_that_passes_for_a_direction_leaves_several(
    features: float, samples: float, alike: bool
) -> None:
    rng = np.random.default_rng(5)
    rows, columns = round(features * ROWS), round(samples * COLUMNS)
    block = np.ones((rows, columns)) if alike else np.outer(rng.standard_normal(rows), rng.standard_normal(columns))
    M = _exact(rng)
    M[np.ix_(rng.choice(ROWS, rows, replace=False), rng.choice(COLUMNS, columns, replace=False))] += 5.0 * block
    plan, verdict = _run(M)
    assert plan.ending is FitEnding.EXACT
    assert plan.rank > 3  # the block is in L
    assert "so do other splits" in verdict.sentence
    assert "a direction rests on" in verdict.sentence


@pytest.mark.parametrize("seed", range(3))
def test_a_factor_that_a_third_of_the_samples_have_leaves_one_split(seed: int) -> None:
    problem = generate(Recipe(60, 150, 3, 0.05, third=True, counts=(50, 50, 50)), seed)
    method = with_closing_rounds(subspace_method(SubspaceSolver(60, 6, 100, 1e-9, fixed_rank=False)), fixed_rank=False)
    run = simulate(method, problem.sites())
    verdict = method.verdict(run.consensus, ())
    assert relative_error(run.low_rank, problem.L) < 1e-8
    assert verdict is not None
    assert verdict.sentence.startswith("Exact: rank 3")


def test_sites_tell_together_which_direction_few_samples_have() -> None:
    rng = np.random.default_rng(6)
    V = rng.standard_normal((200, 3))
    V[:, 2] *= rng.random(200) < 0.15
    V = V @ rng.standard_normal((3, 3))
    _, deviations, turn = np.linalg.svd(V / np.sqrt(200.0), full_matrices=False)
    V = V @ turn.T / deviations
    told = [samples_without(part, 1) * len(part) for part in np.split(V, 4)]
    values = np.linalg.eigvalsh(np.sum(told, axis=0) / len(V))
    share = np.mean(np.abs(V @ np.linalg.eigh(np.sum(told, axis=0))[1][:, -1]) > 1e-9)
    assert values[-1] == pytest.approx(1.0 - share)
    assert share < 0.25
    assert values[:-1] == pytest.approx(0.0, abs=1e-9)
    basis = np.linalg.qr(rng.standard_normal((40, 3)))[0]
    assert features_of_block(basis, np.ones(3), np.sum(told, axis=0) / len(V)) == 1.0
    assert not samples_without(rng.standard_normal((50, 3)), 1).any()
    assert not samples_without(V[:5], 1).any()  # of so few samples any direction is rare


def test_fewer_samples_with_a_direction_than_may_be_told_are_told_as_none() -> None:
    V = np.random.default_rng(7).standard_normal((50, 2))
    V[3:, 1] = 0.0
    assert np.linalg.eigvalsh(samples_without(V, 1))[-1] == pytest.approx(47 / 50)
    assert np.linalg.eigvalsh(samples_without(V, 5))[-1] == pytest.approx(1.0)


def test_samples_are_undetermined_where_outliers_leave_too_few_entries() -> None:
    basis = np.linalg.qr(np.random.default_rng(8).standard_normal((8, 2)))[0]
    assert undetermined_share(basis, 0.05) < 1e-6  # more than two of eight are clean
    basis = np.linalg.qr(np.array([[1.0, 1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]]).T)[0]
    assert undetermined_share(basis, 0.05) == pytest.approx(4 * 0.05**3 * 0.95 + 0.05**4)


def test_coefficients_with_heavy_tails_leave_one_split() -> None:
    rng = np.random.default_rng(4)
    L = rng.standard_normal((ROWS, 3)) @ rng.standard_t(3, size=(3, COLUMNS))
    plan, verdict = _run(L + np.where(rng.random(L.shape) < 0.03, rng.uniform(-100.0, 100.0, L.shape), 0.0))
    assert plan.ending is FitEnding.EXACT
    assert verdict.sentence.startswith("Exact: rank 3")


@pytest.mark.parametrize("offset", [1e3, 1e6])
def test_an_offset_does_not_make_noise_exact(offset: float) -> None:
    plan, _ = _run(offset + np.random.default_rng(1).standard_normal((20, 400)), 5)
    assert (plan.ending, plan.rank) == (FitEnding.REFINED, 0)


@pytest.mark.parametrize("seed", [0, 2])
@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
def test_rare_binary_features_neither_crash_nor_predict_nor_are_exact(share: float, seed: int) -> None:
    plan, verdict = _run((np.random.default_rng(seed).random((30, 1000)) < share).astype(np.float64), 10)
    assert plan.rank == 0 or "so do other splits" in verdict.sentence
    assert "Exact" not in verdict.sentence
    assert "of the hidden entries' spread" not in verdict.sentence


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_a_rank_given_to_coins_is_not_said_to_predict_what_medians_do(share: float) -> None:
    M = (np.random.default_rng(3).random((8, 80)) < share).astype(np.float64)
    method = with_closing_rounds(subspace_method(SubspaceSolver(8, 1, 60, 1e-9, fixed_rank=True)), min_cell=5)
    verdict = method.verdict(simulate(method, split(M, equal_counts(80, 4))).consensus, ())
    assert verdict is not None
    assert not verdict.sound
    assert "predicts 100 %" not in verdict.sentence

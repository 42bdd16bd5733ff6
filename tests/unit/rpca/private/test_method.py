"""A private run finds the subspace as well as it predicts, spends what it states, and refuses what cannot work."""

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.privacy.zcdp import rho_of
from dcfpca.rpca.column_blocks import ArrayColumns, equal_counts, split
from dcfpca.rpca.method import FloatArray, Outcome
from dcfpca.rpca.private.schedule import PrivateSchedule, predicted_error
from dcfpca.rpca.private.site import PrivatePlan
from dcfpca.rpca.private.stages import PrivateSolver, private_method
from dcfpca.rpca.simulate import simulate, simulate_private
from dcfpca.rpca.stage_list import Method

ROWS, RANK, COLUMNS, SITES = 60, 3, 6000, 4


def problem(seed: int = 0, gross: float = 0.05) -> tuple[FloatArray, FloatArray]:
    draws = np.random.default_rng(seed)
    U = draws.standard_normal((ROWS, RANK))
    M = U @ draws.standard_normal((RANK, COLUMNS)) + 0.1 * draws.standard_normal((ROWS, COLUMNS))
    spoiled = draws.random(M.shape) < gross
    M[spoiled] += 30 * draws.choice([-1, 1], int(spoiled.sum()))
    return np.linalg.qr(U)[0], M


def solver(epsilon: float = 3.0, **more: object) -> PrivateSolver:
    schedule = PrivateSchedule(3, rho_of(epsilon, 1e-6))
    return PrivateSolver(ROWS, RANK, schedule, conspirators=1, **more)  # type: ignore[arg-type]


def private(epsilon: float = 3.0, **more: object) -> Method:
    return private_method(solver(epsilon, **more))


def sine(truth: FloatArray, U: FloatArray) -> float:
    return float(np.linalg.norm(truth - U @ (U.T @ truth), 2))


@pytest.mark.parametrize("fixed_rank", [True, False])
def test_a_subspace_with_gross_errors_is_found_as_well_as_predicted(fixed_rank: bool) -> None:
    truth, M = problem()
    method = private(fixed_rank=fixed_rank)
    end = simulate_private(method, split(M, equal_counts(COLUMNS, SITES)), np.random.default_rng(1).bytes)
    U = method.model(end)["U"]
    predicted = predicted_error(ROWS, RANK, COLUMNS, solver().schedule, surplus=SITES / (SITES - 1))
    assert U.shape == (ROWS, RANK)
    assert 0.3 * predicted < sine(truth, U) < 3 * predicted
    verdict = method.verdict(end)
    assert verdict is not None
    assert verdict.sound
    strict = private(fixed_rank=fixed_rank, max_error=1e-9).verdict(end)
    assert strict is not None
    assert strict.sentence.endswith("above max_error = 1e-09, lower the rank or raise epsilon.")


def test_rows_of_large_entries_are_not_locked_out_of_the_sums() -> None:
    """Without noise nothing but the cleaning turns the subspace; in few rows some have entries far above the median."""
    draws = np.random.default_rng(1)
    truth = np.linalg.qr(draws.standard_normal((30, 2)))[0]
    M = 5.0 * truth @ draws.standard_normal((2, 1500)) + 0.05 * draws.standard_normal((30, 1500))
    method = private_method(PrivateSolver(30, 2, PrivateSchedule(3, 0.5)))
    end = simulate(method, split(M, equal_counts(1500, 3))).consensus
    assert sine(truth, method.model(end)["U"]) < 0.01


def test_missing_entries_are_imputed_and_not_taken_for_zeros() -> None:
    truth, M = problem(gross=0.0)
    M[np.random.default_rng(5).random(M.shape) < 0.2] = np.nan
    method = private(epsilon=8.0)
    end = simulate_private(method, split(M, equal_counts(COLUMNS, SITES)), np.random.default_rng(2).bytes)
    assert sine(truth, method.model(end)["U"]) < 0.1


def test_all_rounds_are_taken_and_together_spend_the_budget() -> None:
    _, M = problem()
    method = private()
    end = simulate_private(method, split(M, equal_counts(COLUMNS, SITES)), np.random.default_rng(3).bytes)
    assert end.outcome is Outcome.COMPLETED
    assert end.round == 3
    spent = sum(solver().schedule.sensitivity(t) ** 2 / (2 * solver().schedule.deviation(t) ** 2) for t in range(4))
    assert spent == pytest.approx(solver().schedule.rho)


def test_noise_alone_has_no_direction_above_the_edge() -> None:
    method = private(fixed_rank=False, clip=1.0)
    nothing = [ArrayColumns(np.zeros((ROWS, COLUMNS // SITES))) for _ in range(SITES)]
    end = simulate_private(method, nothing, np.random.default_rng(4).bytes)
    assert PrivatePlan.of(end.broadcast).rank == 0
    verdict = method.verdict(end)
    assert verdict is not None
    assert not verdict.sound
    assert "raise epsilon" in verdict.sentence


def test_a_run_whose_noisy_count_predicts_too_large_an_error_ends_after_the_opening() -> None:
    _, M = problem()
    method = private(epsilon=0.2, max_error=0.25)
    with pytest.raises(BadInput, match="max_error"):
        simulate_private(method, split(M[:, :400], equal_counts(400, SITES)), np.random.default_rng(5).bytes)


def test_flags_are_formed_at_the_site_from_exact_data() -> None:
    _, M = problem()
    method = private()
    parts = split(M, equal_counts(COLUMNS, SITES))
    end = simulate_private(method, parts, np.random.default_rng(6).bytes)
    block = next(iter(method.site(parts[0]).finish(end)))
    spoiled = np.abs(parts[0].read(0, block.L.shape[1]) - block.L) > 15
    flagged = block.S.toarray() != 0
    assert flagged[spoiled].mean() > 0.99


def test_more_budget_or_columns_predict_a_smaller_error() -> None:
    errors = [predicted_error(1000, 10, n, PrivateSchedule(3, rho_of(1.0, 1e-6))) for n in (1e4, 1e5, 1e6)]
    assert errors == sorted(errors, reverse=True)
    assert errors[1] < 0.1

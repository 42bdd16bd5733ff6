"""The stated error of a direction covers the actual one, for directions of whatever strengths and gaps."""

import numpy as np
import pytest

from dcfpca.privacy.zcdp import rho_of
from dcfpca.rpca.column_blocks import equal_counts, split
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.pooling import PooledSums, direction_notes
from dcfpca.rpca.private.schedule import PrivateSchedule
from dcfpca.rpca.private.site import PrivatePlan
from dcfpca.rpca.private.stages import PrivateSolver, private_method
from dcfpca.rpca.simulate import simulate_private

TRIALS = 60


def trial(seed: int, unkept: int) -> tuple[FloatArray, FloatArray]:
    """Actual and stated errors of the directions of one random problem; strengths are spread over a factor of five."""
    draws = np.random.default_rng([seed, unkept])
    rows, rank = int(draws.choice([20, 60])), int(draws.choice([2, 3, 4]))
    columns, epsilon = int(10 ** draws.uniform(3.3, 3.9)), float(draws.choice([1.0, 3.0, 8.0]))
    strengths = np.sort(10 ** draws.uniform(-0.7, 0.0, rank + unkept))[::-1]
    truth = np.linalg.qr(draws.standard_normal((rows, rank + unkept)))[0]
    factors = strengths[:, None] * draws.standard_normal((rank + unkept, columns))
    M = np.sqrt(rows) * truth @ factors + 0.05 * draws.standard_normal((rows, columns))
    schedule = PrivateSchedule(3, rho_of(epsilon, 1e-6))
    method = private_method(PrivateSolver(rows, rank, schedule, conspirators=1, max_error=float("inf")))
    end = simulate_private(method, split(M, equal_counts(columns, 3)), draws.bytes)
    U, kept = method.model(end)["U"], truth[:, :rank]
    return np.linalg.norm(U - kept @ (kept.T @ U), axis=0), PrivatePlan.of(end.broadcast).errors


@pytest.mark.parametrize("unkept", [0, 2])
def test_nine_directions_of_ten_are_within_their_stated_errors(unkept: int) -> None:
    actual, stated = (np.concatenate(each) for each in zip(*(trial(k, unkept) for k in range(TRIALS)), strict=True))
    assert np.mean(actual <= stated) >= 0.9
    assert np.median(stated / actual) < 4.0  # a bound that says nothing would cover, too


def test_a_weak_direction_is_told_from_the_strong_ones() -> None:
    draws = np.random.default_rng(3)
    basis = np.linalg.qr(draws.standard_normal((50, 6)))[0]
    sums = basis[:, :3] @ np.diag([400.0, 200.0, 20.0]) @ basis[:, :3].T @ basis + draws.standard_normal((50, 6))
    pooled = PooledSums.nothing(50).with_round(basis, sums, 1.0)
    first, second, third = pooled.sines(pooled.subspace(6)[1], 3, 1e4)
    assert first < second < 0.1 < third < 1.0


def test_a_direction_without_gap_to_one_that_is_not_kept_is_uncertain() -> None:
    pooled = PooledSums(np.zeros((50, 6)), np.zeros((50, 6)), np.ones(6))
    apart, near = (pooled.sines(np.array([300.0, 100.0, third]), 2, 1e9) for third in (50.0, 99.0))
    assert near[1] > 5 * apart[1]
    assert near[0] < 2 * apart[0]


def test_notes_name_each_direction_and_say_that_they_cost_no_privacy() -> None:
    (note,) = direction_notes(np.array([0.004, 0.2301, 0.0]))
    assert "direction 1 is within sin θ = 0.004;" in note
    assert "direction 2 is uncertain: sin θ up to about 0.24;" in note  # a bound is rounded up
    assert "direction 3 is within sin θ = 0." in note
    assert "cost no privacy" in note

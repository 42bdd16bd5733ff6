from __future__ import annotations

import math

import numpy as np
import pytest

from dcfpca.errors import BadMessage
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import equal_counts, split
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.kernels.order_independent_sum import OrderIndependentSum
from dcfpca.rpca.method import Layout, TensorMessage
from dcfpca.rpca.simulate import exchange, simulate
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.spec import parse_spec

PROBLEM = generate(Recipe(rows=30, columns=40, rank=2, counts=(5, 20, 15)), seed=1)
METHOD = gradient_method(GradientSolver(rows=30, width=2, rounds=6))


def test_history_has_one_entry_per_round_and_the_observer_sees_each() -> None:
    seen: list[int] = []
    result = simulate(METHOD, PROBLEM.sites(), lambda now, sites: seen.append(len(sites)))
    assert len(result.history) == 7  # the opening exchange and six rounds
    assert seen == [3] * 7


def test_results_stand_in_participant_order() -> None:
    result = simulate(METHOD, PROBLEM.sites())
    assert [site.L.shape for site in result.results] == [(30, 5), (30, 20), (30, 15)]
    U = METHOD.model(result.consensus)["U"]
    np.testing.assert_allclose(result.low_rank, U @ np.concatenate([site.V for site in result.results]).T)
    np.testing.assert_array_equal(result.outliers[:, 5:25].toarray(), result.results[1].S.toarray())


def test_the_total_is_the_sum_of_the_updates_and_their_number() -> None:
    sites = [METHOD.site(own) for own in split(PROBLEM.M, (5, 20, 15))]
    total = exchange(METHOD, METHOD.begin(), sites)
    assert total.contributors == 3
    assert total.sums.scalars[0] == 40


def test_an_update_of_another_shape_than_declared_is_rejected() -> None:
    sites = [METHOD.site(own) for own in PROBLEM.sites()]
    other = gradient_method(GradientSolver(rows=30, width=3, rounds=6))
    asked = METHOD.advance(METHOD.begin(), exchange(METHOD, METHOD.begin(), sites))
    with pytest.raises(BadMessage):
        exchange(other, asked, sites)


def test_a_message_survives_flattening() -> None:
    message = TensorMessage(np.arange(6.0).reshape(2, 3), np.array([7.0]))
    again = TensorMessage.unflatten(Layout(2, 3, 1), message.flat())
    np.testing.assert_array_equal(again.tensor, message.tensor)
    np.testing.assert_array_equal(again.scalars, message.scalars)


def test_the_order_of_arrival_does_not_show_in_a_sum() -> None:
    rng = np.random.default_rng(0)
    updates = [rng.standard_normal(10_000) * 10.0 ** rng.integers(-8, 8, 10_000) for _ in range(30)]

    def summed(order: np.ndarray) -> np.ndarray:
        running = OrderIndependentSum(10_000)
        for place in order:
            running.add(updates[place][:400])
            running.add(updates[place][400:], 400)
        return running.total()

    exact = np.array([math.fsum(column) for column in np.array(updates).T])
    np.testing.assert_array_equal(summed(np.arange(30)), exact)
    np.testing.assert_array_equal(summed(rng.permutation(30)), exact)


def test_a_number_that_is_not_finite_stays_visible_in_the_sum() -> None:
    running = OrderIndependentSum(3)
    running.add(np.array([np.inf, np.nan, 1.0]))
    running.add(np.ones(3))
    np.testing.assert_array_equal(running.total(), [np.inf, np.nan, 2.0])


@pytest.mark.parametrize("outliers", [0.0, 0.05, 0.3])
def test_every_broadcast_can_be_sent(outliers: float) -> None:
    """`simulate` raises at numbers that a site refuses, such as the size of a tail that nothing exceeds."""
    draw = np.random.default_rng(0)
    L = draw.standard_normal((100, 3)) @ draw.standard_normal((3, 150))
    M = L + np.where(draw.random(L.shape) < outliers, 50.0, 0.0)
    run = simulate(method_of(parse_spec({"rows": 100, "max_rank": 6})), split(M, equal_counts(150, 3)))
    assert run.consensus.outcome is not None

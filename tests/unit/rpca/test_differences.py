"""How sites compare a consensus with the one they computed: each figure in its own size, and nothing that is no number
hides a difference."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import split
from dcfpca.rpca.method import Consensus, TensorMessage, Total
from dcfpca.rpca.simulate import exchange
from dcfpca.rpca.stage_checks import of_directions, of_figures
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.spec import RunSpec

METHODS: list[dict[str, Any]] = [
    {"closing_rounds": False},
    {"closing_rounds": True},
    {"scaling": "robust"},
    {"method": "gradient", "closing_rounds": False},
]


def final(**keys: Any) -> tuple[Method, Consensus]:
    """A method and the consensus with which a run of it ends."""
    method = method_of(RunSpec.model_validate({"rows": 24, "rank": 2, "rounds": 6} | keys))
    problem = generate(Recipe(rows=24, columns=90, rank=2, sparsity=0.05, counts=(50, 40)), 2)
    sites = [method.site(columns) for columns in problem.sites()]
    consensus = method.begin()
    while consensus.outcome is None:
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    return method, consensus


@pytest.mark.parametrize("keys", METHODS)
@pytest.mark.parametrize("lie", [np.nan, np.inf, -np.inf])
def test_no_number_can_be_replaced_by_what_is_none(keys: dict[str, Any], lie: float) -> None:
    method, true = final(**keys)
    told = true.broadcast
    assert method.difference(true, told) <= 1.0
    for place in np.flatnonzero(np.isfinite(told.scalars)):
        scalars = told.scalars.copy()
        scalars[place] = lie
        assert not method.difference(true, TensorMessage(told.tensor, scalars)) <= 1.0, place
    tensor = told.tensor.copy()
    tensor[0, 0] = lie
    assert not method.difference(true, TensorMessage(tensor, told.scalars)) <= 1.0


@pytest.mark.parametrize("keys", METHODS)
def test_directions_whose_squares_overflow_are_no_true_ones(keys: dict[str, Any]) -> None:
    method, true = final(**keys)
    tensor = true.broadcast.tensor.copy()
    tensor[:, 0] = -tensor[::-1, 0]
    tensor[:, 1] *= 1e200
    with np.errstate(all="ignore"):
        assert not method.difference(true, TensorMessage(tensor, true.broadcast.scalars)) <= 1.0


def test_a_figure_that_is_missing_in_both_is_no_difference_and_hides_none() -> None:
    method, true = final(method="gradient", closing_rounds=False)
    scalars = true.broadcast.scalars.copy()
    scalars[-1] = np.nan
    one = replace(true, broadcast=TensorMessage(true.broadcast.tensor, scalars))
    assert method.difference(one, TensorMessage(one.broadcast.tensor, scalars.copy())) <= 1.0
    assert method.difference(one, TensorMessage(2.0 * one.broadcast.tensor, scalars)) > 1.0


def test_a_small_figure_beside_a_large_one_is_compared_in_its_own_size() -> None:
    assert of_figures(np.array([1e9, 1e-3]), np.array([1e9, 1.0001e-3])) > 1.0
    assert of_figures(np.array([1e9, 1e-3]), np.array([1e9 * (1 + 1e-12), 1e-3])) <= 1.0


def test_a_weak_direction_may_not_be_turned_and_equal_ones_may_be_turned_into_each_other() -> None:
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 6)))[0]
    U, strengths = basis[:, :5], np.array([1e10, 1e8, 4.0, 4.0, 1.0])
    assert of_directions(U, U * [1, -1, 1, -1, 1], strengths) <= 1.0
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    alike = U.copy()
    alike[:, 2:4] = U[:, 2:4] @ turn
    assert of_directions(U, alike, strengths) <= 1.0
    for pair in ((0, 4), (3, 4), (1, 2)):
        turned = U.copy()
        turned[:, pair] = U[:, pair] @ turn
        assert of_directions(U, turned, strengths) > 1.0, pair
    outside = U.copy()
    outside[:, 4] = basis[:, 5]
    assert of_directions(U, outside, strengths) > 1.0


@pytest.mark.parametrize("scaling", ["none", "robust"])
def test_with_features_in_different_units_no_direction_and_no_scale_is_free(scaling: str) -> None:
    """Units from 250,000 to 0.8: relative to the largest number, the directions 3 to 5 and small scales were."""
    method, chain = _run_in_units(scaling)
    for expected in (one for one in chain if one.stage in ("fit", "refine", "validate", "null")):
        true = expected.broadcast
        assert method.difference(expected, true) <= 1.0
        tensor = true.tensor.copy()
        tensor[:, [3, 4]] = tensor[:, [3, 4]] @ np.array([[0.6, -0.8], [0.8, 0.6]])
        weak = expected.stage == "fit"  # there, directions may be as good as absent
        assert weak or method.difference(expected, TensorMessage(tensor, true.scalars)) > 1.0, expected.round
        if scaling == "robust":
            scalars = true.scalars.copy()
            scalars[-1] /= 20.0
            assert method.difference(expected, TensorMessage(true.tensor, scalars)) > 1.0


@pytest.mark.parametrize("scaling", ["none", "robust"])
def test_rounding_as_on_another_machine_is_no_difference(scaling: str) -> None:
    method, chain = _run_in_units(scaling)
    rng = np.random.default_rng(5)
    for before, expected in pairwise(chain):
        if before.stage in ("median", "deviation"):
            continue  # whole numbers
        noisy = before.broadcast.tensor * (1.0 + 2e-16 * rng.integers(-1, 2, before.broadcast.tensor.shape))
        other = replace(before, broadcast=TensorMessage(noisy, before.broadcast.scalars))
        after = method.advance(other, TOTALS[scaling][before.round])
        assert method.difference(expected, after.broadcast) <= 1.0, (before.round, before.stage)


TOTALS: dict[str, list[Total]] = {}


@cache
def _run_in_units(scaling: str) -> tuple[Method, list[Consensus]]:
    """Every consensus of a run on five directions and features in very different units; sums are in TOTALS."""
    rng = np.random.default_rng(3)
    units = np.geomspace(250_000.0, 0.8, 24)[:, None]
    M = units * (rng.standard_normal((24, 5)) @ rng.standard_normal((5, 400)) + 0.2 * rng.standard_normal((24, 400)))
    method = method_of(RunSpec.model_validate({"rows": 24, "rank": 5, "scaling": scaling}))
    sites, chain, totals = [method.site(own) for own in split(M, (150, 250))], [method.begin()], list[Total]()
    while chain[-1].outcome is None:
        totals.append(exchange(method, chain[-1], sites))
        chain.append(method.advance(chain[-1], totals[-1]))
    TOTALS[scaling] = totals
    return method, chain

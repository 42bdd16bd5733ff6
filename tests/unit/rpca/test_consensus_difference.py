"""How sites compare a consensus with the one they computed: nothing that is no number hides a difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.consensus_difference import APART, TOLERANCE, difference
from dcfpca.rpca.method import Consensus, Method, TensorMessage
from dcfpca.rpca.simulate import exchange
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


def apart(method: Method, true: Consensus, other: TensorMessage) -> float:
    """How far a broadcast is from the true one; infinitely where the method does not read it as one."""
    try:
        return difference(method, true.round, true.broadcast, other, true.stage)
    except ValueError:
        return APART


@pytest.mark.parametrize("keys", METHODS)
@pytest.mark.parametrize("lie", [np.nan, np.inf, -np.inf])
def test_no_number_can_be_replaced_by_what_is_none(keys: dict[str, Any], lie: float) -> None:
    method, true = final(**keys)
    told = true.broadcast
    assert apart(method, true, told) <= TOLERANCE
    for place in np.flatnonzero(np.isfinite(told.scalars)):
        scalars = told.scalars.copy()
        scalars[place] = lie
        assert not apart(method, true, TensorMessage(told.tensor, scalars)) <= TOLERANCE, place
    tensor = told.tensor.copy()
    tensor[0, 0] = lie
    assert not apart(method, true, TensorMessage(tensor, told.scalars)) <= TOLERANCE


@pytest.mark.parametrize("keys", METHODS)
def test_directions_whose_squares_overflow_are_no_true_ones(keys: dict[str, Any]) -> None:
    method, true = final(**keys)
    tensor = true.broadcast.tensor.copy()
    tensor[:, 0] = -tensor[::-1, 0]
    tensor[:, 1] *= 1e200
    with np.errstate(all="ignore"):
        assert not apart(method, true, TensorMessage(tensor, true.broadcast.scalars)) <= TOLERANCE


def test_a_figure_that_is_missing_in_both_is_no_difference_and_hides_none() -> None:
    method, true = final(method="gradient", closing_rounds=False)
    scalars = true.broadcast.scalars.copy()
    scalars[-1] = np.nan
    one = TensorMessage(true.broadcast.tensor, scalars)
    assert difference(method, true.round, one, TensorMessage(one.tensor, scalars.copy())) <= TOLERANCE
    assert difference(method, true.round, one, TensorMessage(2.0 * one.tensor, scalars)) > TOLERANCE

"""What a site refuses to compute on: no honest run has such a consensus, and each lie is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dcfpca.errors import BadMessage
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus, TensorMessage
from dcfpca.rpca.refinement.closing_plan import CLOSING, HEAD
from dcfpca.rpca.simulate import exchange
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.round_plan import CoefficientStart, RoundPlan
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.spec import RunSpec

ROWS = 24
BITS = 64


def broadcasts(**keys: Any) -> tuple[Method, list[Consensus]]:
    spec = RunSpec.model_validate({"rows": ROWS, "rank": 2, "rounds": 12} | keys)
    problem = generate(Recipe(rows=ROWS, columns=33, rank=2, sparsity=0.1, counts=(14, 10, 9)), 2)
    method = method_of(spec)
    sites = [method.site(columns) for columns in problem.sites()]
    consensus, told = method.begin(), []
    while consensus.outcome is None:
        told.append(consensus)
        consensus = method.advance(consensus, exchange(method, consensus, sites))
    return method, told


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"rank": None, "max_rank": 6},
        {"scaling": "robust"},
        {"method": "gradient"},
        {"method": "gradient", "scaling": "robust"},
    ],
)
def test_nothing_speaks_against_any_round_of_an_honest_run(keys: dict[str, Any]) -> None:
    method, told = broadcasts(**keys)
    before: Consensus | None = None
    for seen in told:
        assert method.plausible(seen, before, BITS) == ""
        assert method.plausible(seen, None, BITS) == ""
        before = seen


def bent(plan: RoundPlan, **changes: Any) -> TensorMessage:
    return replace(plan, **changes).broadcast()


LIES: list[tuple[str, Callable[[RoundPlan], TensorMessage]]] = [
    ("not finite", lambda plan: bent(plan, noise=float("nan"))),
    ("length one", lambda plan: bent(plan, U=2.0 * plan.U)),
    ("orthonormal", lambda plan: bent(plan, U=plan.U[:, [0, 0]])),
    ("weight", lambda plan: bent(plan, weights=3.0 * plan.weights)),
    ("negative", lambda plan: bent(plan, values=-plan.values)),
    ("not positive", lambda plan: bent(plan, threshold=0.0)),
    ("announced noise allows", lambda plan: bent(plan, threshold=plan.threshold / 1e9)),
    ("outside its limits", lambda plan: bent(plan, step=100.0)),
    ("below one", lambda plan: bent(plan, columns=0.0)),
    ("not that of the round before", lambda plan: bent(plan, columns=1e200)),
    ("noise is far above", lambda plan: bent(plan, noise=1e9, threshold=1e10)),
    ("threshold rose", lambda plan: bent(plan, threshold=1e200)),
    ("singular value is far above", lambda plan: bent(plan, values=plan.values + 1e200)),
]


@pytest.mark.parametrize(("reason", "lie"), LIES)
def test_each_lie_about_a_subspace_round_is_named(reason: str, lie: Callable[[RoundPlan], TensorMessage]) -> None:
    method, told = broadcasts()
    before, now = told[3], told[4]
    assert reason in method.plausible(replace(now, broadcast=lie(RoundPlan.of(now.broadcast))), before, BITS)


def test_a_threshold_begins_anew_after_the_first_round_alone_and_within_its_limit() -> None:
    method, told = broadcasts()
    plan = RoundPlan.of(told[2].broadcast)
    low = replace(told[1], broadcast=bent(RoundPlan.of(told[1].broadcast), threshold=3.0 * plan.noise))
    for multiple, start, refused in (
        (7.1, CoefficientStart.SWEPT, False),
        (7.3, CoefficientStart.SWEPT, True),
        (7.1, CoefficientStart.CARRIED, True),
    ):
        raised = bent(plan, threshold=multiple * plan.noise, start=start)
        assert ("threshold rose" in method.plausible(replace(told[2], broadcast=raised), low, BITS)) is refused


def test_penalties_of_the_gradient_method_do_not_change_and_the_factor_does_not_explode() -> None:
    method, told = broadcasts(method="gradient")
    before, now = told[3], told[4]
    for place, reason in ((0, "no such round"), (1, "columns"), (2, "penalty"), (4, "learning rate")):
        scalars = now.broadcast.scalars.copy()
        scalars[place] *= 20.0
        bent_now = replace(now, broadcast=TensorMessage(now.broadcast.tensor, scalars))
        assert reason in method.plausible(bent_now, before, BITS)
    larger = TensorMessage(1e9 * now.broadcast.tensor, now.broadcast.scalars)
    assert "far larger" in method.plausible(replace(now, broadcast=larger), before, BITS)


def test_numbers_that_cannot_be_squared_are_refused_in_the_first_round_too() -> None:
    method, told = broadcasts(method="gradient")
    first = next(seen for seen in told if seen.broadcast.tensor.size)
    huge = TensorMessage(first.broadcast.tensor * 1e200, first.broadcast.scalars)
    assert "squared" in method.plausible(replace(first, broadcast=huge), None, BITS)


def test_digits_of_a_median_only_gain_one_and_scales_stay() -> None:
    method, told = broadcasts(scaling="robust")
    third = told[3].broadcast
    tensor = third.tensor.copy()
    for more, reason in ((1024.0, "do not continue"), (0.5, "whole numbers")):
        tensor[0, 0] += more
        lie = replace(told[3], broadcast=TensorMessage(tensor, third.scalars))
        assert reason in method.plausible(lie, told[2], BITS)
    skipped = replace(told[3], broadcast=TensorMessage(third.tensor, third.scalars + 1.0))
    assert "grow by one" in method.plausible(skipped, told[2], BITS)
    last = told[-1]
    scalars = last.broadcast.scalars.copy()
    scalars[-1] *= 2.0
    bent_last = replace(last, broadcast=TensorMessage(last.broadcast.tensor, scalars))
    assert "scales" in method.plausible(bent_last, told[-2], BITS)


def test_a_round_of_a_stage_that_cannot_come_next_is_refused() -> None:
    method, told = broadcasts()
    by_stage = {one.stage: one for one in told}
    for before, after in (("null", "fit"), ("open", "null"), ("refine", "open"), ("validate", "fit")):
        if {before, after} <= by_stage.keys():
            lie = replace(by_stage[after], round=by_stage[before].round + 1)
            assert "does not follow" in method.plausible(lie, by_stage[before], BITS)
    with pytest.raises(BadMessage, match="no stage"):
        method.plausible(replace(told[1], stage="surprise"), None, BITS)


def test_rounds_of_the_fit_are_counted_on() -> None:
    method, told = broadcasts()
    plan = RoundPlan.of(told[4].broadcast)
    for number, reason in ((plan.number + 1, "do not count on"), (1, "do not count on"), (0, ""), (99, "")):
        lie = replace(told[4], broadcast=bent(plan, number=number))
        assert (reason or "no such round") in method.plausible(lie, told[3] if reason else None, BITS)


@pytest.mark.parametrize("keys", [{}, {"scaling": "robust"}, {"method": "gradient"}])
def test_closing_rounds_begin_with_the_columns_of_the_fit(keys: dict[str, Any]) -> None:
    method, told = broadcasts(**keys)
    place = next(number for number, seen in enumerate(told) if seen.stage in CLOSING)
    before, first = told[place - 1 : place + 1]
    scalars = first.broadcast.scalars.copy()
    (where,) = np.flatnonzero(scalars[: 1 + len(HEAD)] == 33.0)[:1]
    scalars[where] = 3.3e7
    lie = replace(first, broadcast=replace(first.broadcast, scalars=scalars))
    assert method.plausible(lie, before, BITS) == "the number of columns is not that of the round before"

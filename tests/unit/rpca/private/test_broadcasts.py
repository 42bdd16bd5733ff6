"""What a site of a private run refuses to answer, and how it compares a consensus with the one it computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.rpca.private.site import PrivatePlan
from dcfpca.rpca.stage import Stage
from dcfpca.secagg import fixed_point as blocks
from dcfpca.secagg.fixed_point import block_layout
from dcfpca.spec import parse_spec

METHOD = method_of(parse_spec({"rows": 40, "rank": 2, "privacy": {"epsilon": 1.0}}))
FIXED = method_of(parse_spec({"rows": 40, "rank": 2, "privacy": {"epsilon": 1.0, "clip": 2.0}}))
BITS = 64


def basis(seed: int = 0) -> FloatArray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((40, 4)))[0]


PLAN = PrivatePlan(basis(), 3.0, 500.0, 2, 0.1, np.array([2.0, 1.0]))
BEFORE = Consensus(2, "fit", PrivatePlan(basis(1), 3.0, 500.0, 0, 0.1, np.zeros(2)).broadcast())
LIES: list[Callable[[PrivatePlan], PrivatePlan]] = [
    lambda plan: replace(plan, U=2.0 * plan.U),
    lambda plan: replace(plan, U=plan.U[:, [0, 0, 1, 2]]),
    lambda plan: replace(plan, clip=2.9),
    lambda plan: replace(plan, clip=0.0),
    lambda plan: replace(plan, columns=501.0),
    lambda plan: replace(plan, rank=3),
    lambda plan: replace(plan, values=np.array([1.0, -1.0])),
]


def told(plan: PrivatePlan) -> Consensus:
    return Consensus(3, "fit", plan.broadcast())


def test_an_honest_plan_is_answered_whatever_the_site_counts_itself() -> None:
    assert METHOD.plausible(told(PLAN), BEFORE, BITS) == ""


@pytest.mark.parametrize("lie", LIES)
def test_every_lie_is_refused_before_anything_is_computed(lie: Callable[[PrivatePlan], PrivatePlan]) -> None:
    assert METHOD.plausible(told(lie(PLAN)), BEFORE, BITS)


def test_a_clip_that_the_spec_states_may_not_be_another() -> None:
    assert FIXED.plausible(told(PLAN), None, BITS)


def test_plans_are_compared_by_the_spaces_they_span() -> None:
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((2, 2)))[0]
    turned = replace(PLAN, U=np.concatenate([-PLAN.U[:, :2], PLAN.U[:, 2:] @ turn.T], axis=1))
    assert METHOD.difference(told(PLAN), turned.broadcast()) < 1.0
    alike = replace(PLAN, values=np.array([2.0, 2.0]))
    turned = replace(alike, U=np.concatenate([PLAN.U[:, :2] @ turn, PLAN.U[:, 2:]], axis=1))
    assert METHOD.difference(told(alike), turned.broadcast()) < 1.0
    across = replace(PLAN, U=PLAN.U[:, [0, 2, 1, 3]])
    swapped = replace(PLAN, U=PLAN.U[:, [1, 0, 2, 3]])  # each under the other's singular value
    gap = replace(PLAN, values=np.array([2.0, np.nan]))
    for other in (across, swapped, gap, replace(PLAN, U=basis(5)), *(lie(PLAN) for lie in (LIES[2], LIES[4]))):
        assert METHOD.difference(told(PLAN), other.broadcast()) > 1.0


@pytest.mark.parametrize("stage", METHOD.stages, ids=lambda stage: stage.name)
def test_sums_of_every_stage_have_one_exponent_that_stays(stage: Stage) -> None:
    layout = block_layout(stage.up)
    assert [block.name for block in layout.blocks] == [blocks.BOUNDED]

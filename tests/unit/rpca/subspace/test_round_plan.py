"""The plan of a round as it stands in a broadcast."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from dcfpca.errors import BadMessage
from dcfpca.rpca.subspace.round_plan import PLAN_SCALARS, CoefficientStart, RoundPlan, plan_layout

PLAN = RoundPlan(
    U=np.eye(4, 2),
    number=3,
    threshold=0.3,
    noise=0.1,
    relaxation=1.1,
    step=1.2,
    momentum=0.4,
    single=True,
    narrow=False,
    start=CoefficientStart.SWEPT,
    columns=50.0,
    weights=np.array([0.0, 0.7]),
    values=np.array([5.0, 2.0]),
)


def test_a_plan_read_from_its_broadcast_is_the_same_plan() -> None:
    again = RoundPlan.of(PLAN.broadcast())
    for field in fields(RoundPlan):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(PLAN, field.name))
    assert again.start is CoefficientStart.SWEPT
    assert again.entering.tolist() == [1]


def test_the_broadcast_has_the_layout_that_every_site_expects() -> None:
    layout, sent = plan_layout(4, 2), PLAN.broadcast()
    assert sent.tensor.shape == (layout.rows, layout.columns)
    assert sent.scalars.size == layout.scalars
    # The order of the scalars is the wire's.
    assert PLAN_SCALARS == (
        "number", "threshold", "noise", "relaxation", "step", "momentum", "single", "narrow", "start", "columns",
    )  # fmt: skip


@pytest.mark.parametrize("number", [3.0, 0.5, -1.0])
def test_a_broadcast_with_an_unknown_start_is_refused(number: float) -> None:
    sent = PLAN.broadcast()
    sent.scalars[PLAN_SCALARS.index("start")] = number
    with pytest.raises(BadMessage, match="which does not exist"):
        RoundPlan.of(sent)

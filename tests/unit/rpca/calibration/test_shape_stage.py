"""The knots of features rest on the samples that were counted, not on those that were set aside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus
from dcfpca.rpca.refinement.closing_plan import SHAPE, ClosingPlan
from dcfpca.rpca.simulate import exchange, simulate
from dcfpca.spec import parse_spec


def test_samples_that_are_set_aside_do_not_stretch_the_scores() -> None:
    X = np.random.default_rng(0).normal(size=(20, 60))
    method, sites = method_of(parse_spec({"rows": 20})), [ArrayColumns(X[:, k::4]) for k in range(4)]
    asked: list[Consensus] = []
    simulate(method, sites, lambda consensus, _: asked.append(consensus) if consensus.stage == SHAPE else None)
    shape, plan = method.stage(SHAPE), ClosingPlan.of(asked[0].broadcast)
    total = exchange(method, asked[0], [method.site(own) for own in sites])
    with_more_aside = replace(asked[0], broadcast=replace(plan, columns=2.0 * plan.columns).broadcast())
    np.testing.assert_array_equal(_knots(shape.advance(asked[0], total)), _knots(shape.advance(with_more_aside, total)))


def _knots(consensus: Consensus) -> np.ndarray:
    found = ClosingPlan.of(consensus.broadcast).calibration
    assert found is not None
    return found.knots

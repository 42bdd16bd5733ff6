"""What follows from a spec is worked out once on either side: nothing of it is made in a round."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcfpca.rpca.method import Layout
from dcfpca.rpca.stage import Stage
from dcfpca.rpca.stage_list import Method
from dcfpca.secagg.fixed_point import BlockLayout
from dcfpca.secagg.messages import RunTerms
from dcfpca.spec import parse_spec
from dcfpca.terms import Terms
from dcfpca.v1 import admin_pb2 as pb
from tests.support.services.honest import honest_sites
from tests.support.services.processes import PATIENCE
from tests.support.services.service import service

SITES = ("ann", "bob", "cem")
MADE_ONCE = (Terms, Method, Stage, Layout, BlockLayout, RunTerms)


@pytest.mark.parametrize("aggregation", ["secure", "plain"])
async def test_no_method_layout_or_terms_are_made_in_the_rounds_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, aggregation: str
) -> None:
    made: Counter[str] = Counter()
    for kind in MADE_ONCE:
        monkeypatch.setattr(kind, "__init__", counted(kind, made))
    draw = np.random.default_rng(1)
    data = {name: draw.standard_normal((12, 30)) for name in SITES}
    spec = parse_spec({"rows": 12, "rank": 2, "rounds": 20, "tolerance": 0, "closing_rounds": False})
    spec = spec.model_copy(update={"aggregation": aggregation, "participants": SITES, "scaling": "robust"})
    async with service(tmp_path) as aggregator, honest_sites(aggregator, data), asyncio.timeout(PATIENCE):
        request = pb.ProposeRunRequest(spec=spec.canonical(), request_id=uuid.uuid4().hex)
        run_id = (await aggregator.operator().ProposeRun(request)).run_id
        runner, at = aggregator.run_registry.runners[run_id], dict[int, Counter[str]]()
        while not runner.run.status.over:
            if runner.run.attempt is not None:
                at.setdefault(runner.run.attempt.ref.round, Counter(made))
            await runner.changed.wait(runner.changed.version)
        ended = Counter(made)
    assert runner.run.status.value == "finished", runner.run.reason
    assert max(at) >= 20
    assert made["Terms"] == 1, "all are in one process here, and share them"
    assert ended - at[1] == Counter(), "made in a round"


def counted(kind: type[Any], made: Counter[str]) -> Any:
    """The initializer of this class, which counts what it makes."""
    initialize = kind.__init__

    def init(self: Any, *args: Any, **keys: Any) -> None:
        made[kind.__name__] += 1
        initialize(self, *args, **keys)

    return init

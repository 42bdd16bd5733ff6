"""A hostile member of a fixed cohort: what everybody says in a run, changed, against the real aggregator.

The long form, 100,000 messages: DCFPCA_LONG=1 pytest tests/integration/hostile/test_secure_run.py --timeout=7200 -rP
(DCFPCA_FUZZ_CASES for another number, DCFPCA_FUZZ_SEED for other messages than last time).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.runner import Runner
from dcfpca.identity import Role
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.v1 import admin_pb2, types_pb2
from tests.support.hostile.hostile_calls import attack, failures_told, is_defect, memory_kib
from tests.support.hostile.hostile_messages import Scene
from tests.support.hostile.mutation import SaidMessages
from tests.support.services.federation import relative
from tests.support.services.honest import honest_sites
from tests.support.services.service import Service, service

NAMES = ("ann", "bob", "cem", "mallory")
HOSTILE = "mallory"
ROWS, RANK = 6, 2
LONG = bool(os.environ.get("DCFPCA_LONG"))
CASES = int(os.environ.get("DCFPCA_FUZZ_CASES", "100000" if LONG else "2000"))
SEED = int(os.environ.get("DCFPCA_FUZZ_SEED", "1"))
CASES_A_RUN = 250
CASES_A_CHANGE = 12
"""Messages between two changes of the run: everybody shares one process here, and the honest ones need their turns."""
SET_UP_AND_ROUND = {"AdvertiseRunKey", "ShareGroupSecret", "SubmitWhole", "Respond"}


def spec_of() -> RunSpec:
    keys = {"method": "gradient", "rows": ROWS, "rank": RANK, "rounds": 3, "tolerance": 0, "participants": NAMES}
    return parse_spec(keys | {"closing_rounds": False, "round_seconds": 20})


async def proposed(aggregator: Service, operator: Any, spec: RunSpec) -> Runner:
    """A run of everybody, the hostile one's own daemon included."""
    request = admin_pb2.ProposeRunRequest(spec=spec.canonical(), request_id=uuid.uuid4().hex)
    run_id = (await operator.ProposeRun(request)).run_id
    return aggregator.run_registry.runners[run_id]


def scene_of(runner: Runner, other_run: str) -> Scene:
    """What the hostile one knows of the run."""
    here = runner.run.attempt
    round, attempt = (here.ref.round, here.ref.attempt) if here else (0, 1)
    layout = runner.terms.method.stage(runner.round_sum.consensus.stage).up
    shape = (layout.rows, layout.columns, layout.scalars)
    return Scene(runner.run.run_id, round, attempt, *shape, HOSTILE, types_pb2.DTYPE_UINT64, other_run)


async def attack_run(
    runner: Runner, channels: list[Any], said: SaidMessages, draw: random.Random, other_run: str
) -> Counter[str]:
    """Attack a run from its first moment to some time after its last; what the calls got."""
    told, version, since = Counter[str](), 0, 0
    async with asyncio.timeout(120):
        while not runner.run.status.over or told.total() < CASES_A_RUN:
            if runner.changed.version != version:
                version, since = runner.changed.version, 0
            one = said.mutated(draw, scene_of(runner, other_run))
            if one is None or (since == CASES_A_CHANGE and not runner.run.status.over):
                await runner.changed.wait(version)
                continue
            since += 1
            code, details = await attack(draw.choice(channels), one)
            assert not is_defect(code, details), (one.method.name, one.what, code, details)
            told[code.name] += 1
    return told


@pytest.mark.slow
@pytest.mark.timeout(7200 if LONG else 240)
@pytest.mark.filterwarnings(
    "ignore:Parsed a serial number"
)  # in a certificate with changed bits; outside tests a log line
async def test_changed_messages_of_set_up_and_rounds_cost_nobody_the_right_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_data = np.random.default_rng(8)
    data = {name: draw_data.standard_normal((ROWS, 5)) for name in NAMES}
    spec, levels, told, other = spec_of(), [], Counter[str](), "another"
    alone = simulate(method_of(spec), [ArrayColumns(data[name]) for name in NAMES])
    said, draw = SaidMessages(monkeypatch, HOSTILE), random.Random(SEED)
    limits: dict[str, Any] = {"upload_seconds": 1, "calls_per_second": 1e6, "call_burst": 10**6}
    async with service(tmp_path, **limits) as aggregator, honest_sites(aggregator, data):
        inside = aggregator.channel_of(aggregator.credentials(Role.PARTICIPANT, HOSTILE))
        channels = [inside, inside, aggregator.channel(Role.PARTICIPANT, "stranger")]
        operator = aggregator.operator()
        while told.total() < CASES:
            runner = await proposed(aggregator, operator, spec)
            told += await attack_run(runner, channels, said, draw, other)
            assert runner.run.status.value == "finished", runner.run.reason
            got, other = runner.round_sum.consensus.broadcast.tensor, runner.run.run_id
            assert relative(got, alone.consensus.broadcast.tensor) <= 1e-9
            levels.append(memory_kib())
        assert failures_told(aggregator) == 0
    assert said.calls >= SET_UP_AND_ROUND
    sys.stdout.write(
        f"{told.total()} messages of {sorted(said.calls)} in {len(levels)} runs: {dict(told)}; "
        f"memory {levels[0]} to {levels[-1]} KiB\n"
    )
    # Runs are remembered, attacks are not.
    half = len(levels) // 2
    assert levels[-1] - levels[half] < 32 * 1024 + 100 * (len(levels) - half)

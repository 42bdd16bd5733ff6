"""An authenticated but hostile participant, inside the cohort and outside it, against every call there is.

The long form: DCFPCA_FUZZ_CASES=100000 pytest tests/integration/hostile/test_participant.py --timeout=7200 -rP
(DCFPCA_FUZZ_SEED for other cases than last time).
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from aggregator.runner import Runner
from dcfpca.identity import Role
from dcfpca.methods import method_of
from dcfpca.pki.credential_files import Credentials
from dcfpca.pki.keys import sign
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.v1 import admin_pb2, types_pb2
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.rounds_pb2_grpc import RoundServiceStub
from dcfpca.wire.round_messages import consent_bytes, update_dtype
from tests.support.hostile.hostile_calls import PATIENCE, attack, failures_told, is_defect, memory_kib
from tests.support.hostile.hostile_messages import OPERATORS, Scene, Tape, case
from tests.support.services.federation import relative
from tests.support.services.honest import honest_sites
from tests.support.services.service import Service, service

HONEST = ("ann", "bob", "cem")
HOSTILE = "mallory"
ROWS, RANK = 6, 2
CASES = int(os.environ.get("DCFPCA_FUZZ_CASES", "400"))
SEED = int(os.environ.get("DCFPCA_FUZZ_SEED", "1"))
CASES_A_RUN = 200
# A secure run waits for the hostile one and pauses: test_secure_run.py attacks its calls.


def spec_of(aggregation: str, rounds: int) -> RunSpec:
    return parse_spec(
        {
            "method": "gradient",
            "rows": ROWS,
            "rank": RANK,
            "rounds": rounds,
            "tolerance": 0,
            "closing_rounds": False,
            "aggregation": aggregation,
            "participants": (*HONEST, HOSTILE),
            "quorum": 3,
            "round_seconds": 4,
            "max_attempts": 50,
        }
    )


def honest_data() -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    draw = np.random.default_rng(8)
    return {name: draw.standard_normal((ROWS, 5)) for name in HONEST}


async def enrol(aggregator: Service, run_id: str, spec: RunSpec, own: Credentials) -> grpc.aio.Channel:
    """The hostile one enrols properly, so that it is in the cohort."""
    channel = aggregator.channel_of(own)
    said = consent_bytes(run_id, spec.digest(), HOSTILE, accept=True, private=False, reasons=[])
    answer = await RoundServiceStub(channel).Respond(
        pb.RespondRequest(run_id=run_id, spec_sha256=spec.digest(), accept=True, signature=sign(own.private_key, said))
    )
    assert answer.fate == 1
    return channel


async def fuzz(attacked: Attacked, channels: list[grpc.aio.Channel], draw: random.Random) -> str:
    """One hostile call, whatever the run does meanwhile; what it got."""
    runner = attacked.runner
    here = runner.run.attempt
    layout = runner.terms.method.stage(runner.round_sum.consensus.stage).up
    place = (here.ref.round, here.ref.attempt) if here else (0, 1)
    dtype = update_dtype(runner.spec)
    shape = (layout.rows, layout.columns, layout.scalars)
    scene = Scene(runner.run.run_id, *place, *shape, HOSTILE, dtype, attacked.other_run)
    one = case(draw, scene, attacked.tape)
    code, details = await attack(draw.choice(channels), one)
    assert not is_defect(code, details), (one.method.name, one.what, code, details)
    if one.method in OPERATORS and one.method.name != "FetchAuditLog":
        assert code is grpc.StatusCode.PERMISSION_DENIED
    return code.name


@dataclass(frozen=True)
class Attacked:
    """A run under attack, and what the attacker has of others."""

    runner: Runner
    other_run: str
    tape: Tape


async def one_run(aggregator: Service, spec: RunSpec, own: Credentials, other_run: str, tape: Tape) -> Attacked:
    """A run of the honest ones, with the hostile one in its cohort."""
    proposal = admin_pb2.ProposeRunRequest(spec=spec.canonical(), request_id=uuid.uuid4().hex)
    run_id = (await aggregator.operator().ProposeRun(proposal)).run_id
    await (await enrol(aggregator, run_id, spec, own)).close(None)
    return Attacked(aggregator.run_registry.runners[run_id], other_run, tape)


async def attack_run(attacked: Attacked, channels: list[grpc.aio.Channel], draw: random.Random) -> Counter[str]:
    """Attack a run from its first moment to its last; what the calls got."""
    told = Counter[str]()
    async with asyncio.timeout(120):
        while not attacked.runner.run.status.over or told.total() < CASES_A_RUN:
            told[await fuzz(attacked, channels, draw)] += 1
    assert told["INVALID_ARGUMENT"] > 0
    return told


@pytest.mark.slow
@pytest.mark.timeout(7200 if CASES > 10_000 else 240)
async def test_whatever_it_sends_the_honest_ones_finish_with_the_right_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, data, levels = spec_of("plain", rounds=2), honest_data(), []
    alone = simulate(method_of(spec), [ArrayColumns(data[name]) for name in HONEST])
    limits: dict[str, Any] = {"upload_seconds": 1, "calls_per_second": 1e6, "call_burst": 10**6}
    tape, other, draw, told = Tape(monkeypatch), "another", random.Random(SEED), Counter[str]()
    async with service(tmp_path, **limits) as aggregator, honest_sites(aggregator, data):
        own = aggregator.credentials(Role.PARTICIPANT, HOSTILE)
        inside = aggregator.channel_of(own)
        channels = [inside, inside, aggregator.channel(Role.PARTICIPANT, "stranger")]
        while told.total() < CASES:
            attacked = await one_run(aggregator, spec, own, other, tape)
            told += await attack_run(attacked, channels, draw)
            run, other = attacked.runner.run, attacked.runner.run.run_id
            assert run.status.value == "finished", run.reason
            got = attacked.runner.round_sum.consensus.broadcast.tensor
            assert relative(got, alone.consensus.broadcast.tensor) <= 1e-10
            levels.append(memory_kib())
        assert failures_told(aggregator) == 0
    told_in_all = f"{told.total()} calls in {len(levels)} runs: {dict(told)}; memory {levels[0]} to {levels[-1]} KiB"
    sys.stdout.write(told_in_all + "\n")
    # Runs are remembered, attacks are not.
    half = len(levels) // 2
    assert levels[-1] - levels[half] < 32 * 1024 + 100 * (len(levels) - half)


async def test_messages_that_name_another_participant_are_rejected(tmp_path: Path) -> None:
    spec = spec_of("secure", rounds=2)
    async with service(tmp_path) as aggregator:
        proposal = admin_pb2.ProposeRunRequest(spec=spec.canonical(), request_id=uuid.uuid4().hex)
        run_id = (await aggregator.operator().ProposeRun(proposal)).run_id
        ann, stub = aggregator.credentials(Role.PARTICIPANT, "ann"), aggregator.participant(HOSTILE)
        ref = types_pb2.RoundRef(run_id=run_id, round=0, attempt=1)
        key, misfit = pb.RunKey(participant="ann", key=bytes(32)), pb.Misfit(participant="ann", context=bytes(32))
        for call, words in (
            (stub.AdvertiseRunKey(pb.AdvertiseRunKeyRequest(run_id=run_id, key=key)), "the key is that of ann"),
            (stub.ReportMisfit(pb.ReportMisfitRequest(ref=ref, misfit=misfit)), "the misfit is not one of mallory"),
        ):
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert words in (await call.details() or "")
        said = consent_bytes(run_id, spec.digest(), "ann", accept=True, private=False, reasons=[])
        stolen = pb.RespondRequest(
            run_id=run_id, spec_sha256=spec.digest(), accept=True, signature=sign(ann.private_key, said)
        )
        answer = await stub.Respond(stolen)
        assert (answer.fate, "not this participant's" in answer.reason) == (types_pb2.FATE_REJECTED, True)
        assert aggregator.run_registry.runners[run_id].run.enrolled == {}


@pytest.mark.slow
async def test_an_upload_that_says_no_more_is_cut_and_costs_the_others_nothing(tmp_path: Path) -> None:
    spec, data = spec_of("plain", rounds=2), honest_data()
    async with service(tmp_path, upload_seconds=0.3) as aggregator, honest_sites(aggregator, data):
        proposal = admin_pb2.ProposeRunRequest(spec=spec.canonical(), request_id=uuid.uuid4().hex)
        run_id = (await aggregator.operator().ProposeRun(proposal)).run_id
        own = aggregator.credentials(Role.PARTICIPANT, HOSTILE)
        stub = RoundServiceStub(await enrol(aggregator, run_id, spec, own))
        runner = aggregator.run_registry.runners[run_id]
        layout = runner.terms.method.stages[0].up
        async with asyncio.timeout(PATIENCE):
            while runner.run.attempt is None:  # until the others have enrolled, an update would be late
                await runner.changed.wait(runner.changed.version)
        call = stub.SubmitUpdate(timeout=PATIENCE)
        header = pb.UpdateHeader()
        header.ref.run_id, header.ref.attempt = run_id, 1
        header.tensor.dtype, header.tensor.rows = types_pb2.DTYPE_FLOAT64, layout.rows
        header.tensor.columns, header.tensor.scalars, header.tensor.sha256 = (
            layout.columns,
            layout.scalars,
            bytes(32),
        )
        await call.write(pb.UpdatePart(header=header))
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "nothing came for" in (await call.details() or "")
        async with asyncio.timeout(60):
            while not runner.run.status.over:
                await runner.changed.wait(runner.changed.version)
        assert runner.run.status.value == "finished"

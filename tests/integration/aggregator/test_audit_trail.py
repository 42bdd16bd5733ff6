"""Whoever does something is in the audit log, however quickly they hang up afterwards."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from pathlib import Path
from typing import Any

import pytest

from aggregator.store import audit
from dcfpca.identity import Role
from dcfpca.pki.keys import sign
from dcfpca.spec import parse_spec
from dcfpca.v1 import admin_pb2
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.rounds_pb2_grpc import RoundServiceStub
from dcfpca.wire.round_messages import consent_bytes
from tests.support.services.service import Service, service

SPEC = parse_spec({"rows": 4, "rank": 1, "participants": ("ann", "bob", "cem"), "enrol_seconds": 600})


async def proposed(stub: Any, request_id: str = "") -> str:
    request = admin_pb2.ProposeRunRequest(spec=SPEC.canonical(), request_id=request_id or uuid.uuid4().hex)
    run_id: str = (await stub.ProposeRun(request)).run_id
    return run_id


async def hung_up_on(call: Any, draw: random.Random) -> None:
    """Let a call go on for a moment, then hang up."""
    done, _ = await asyncio.wait([asyncio.ensure_future(call.code())], timeout=draw.uniform(0, 0.006))
    if not done:
        call.cancel()


async def recorded(aggregator: Service, run_id: str) -> list[str]:
    entries = await aggregator.run_registry.store.do(lambda store: audit.entries(store.connection))
    return [entry.action for entry in entries if entry.run_id == run_id]


async def settle(aggregator: Service) -> None:
    """Until everything that was begun is done."""
    await asyncio.sleep(0.05)
    await asyncio.gather(*aggregator.run_registry._in_progress, return_exceptions=True)


@pytest.mark.slow
async def test_an_abort_that_took_effect_is_recorded_though_the_operator_hung_up(tmp_path: Path) -> None:
    draw, ended = random.Random(4), 0
    async with service(tmp_path) as aggregator:
        stub = aggregator.operator()
        for _ in range(40):
            run_id = await proposed(stub)
            await hung_up_on(stub.AbortRun(admin_pb2.AbortRunRequest(run_id=run_id)), draw)
            await settle(aggregator)
            over = aggregator.run_registry.runners[run_id].run.status.over
            assert ("run_aborted" in await recorded(aggregator, run_id)) == over
            ended += over
    assert ended


@pytest.mark.slow
async def test_a_proposal_that_was_hung_up_on_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    draw = random.Random(5)
    async with service(tmp_path) as aggregator:
        stub = aggregator.operator()
        for _ in range(40):
            request_id = uuid.uuid4().hex
            request = admin_pb2.ProposeRunRequest(spec=SPEC.canonical(), request_id=request_id)
            await hung_up_on(stub.ProposeRun(request), draw)
            await settle(aggregator)
            known = await aggregator.run_registry.run_of_request(request_id)
            assert known is None or await recorded(aggregator, known) == ["run_proposed"]
            assert await proposed(stub, request_id) == (known or (await proposed(stub, request_id)))


@pytest.mark.slow
async def test_an_enrolment_that_took_effect_is_recorded_though_the_site_hung_up(tmp_path: Path) -> None:
    draw, enrolled = random.Random(6), 0
    async with service(tmp_path) as aggregator:
        own = aggregator.credentials(Role.PARTICIPANT, "ann")
        stub, operator = RoundServiceStub(aggregator.channel_of(own)), aggregator.operator()
        for _ in range(40):
            run_id = await proposed(operator)
            said = consent_bytes(run_id, SPEC.digest(), "ann", accept=True, private=False, reasons=[])
            answer = pb.RespondRequest(
                run_id=run_id, spec_sha256=SPEC.digest(), accept=True, signature=sign(own.private_key, said)
            )
            await hung_up_on(stub.Respond(answer), draw)
            await settle(aggregator)
            here = "ann" in aggregator.run_registry.runners[run_id].run.enrolled
            assert ("participant_enrolled" in await recorded(aggregator, run_id)) == here
            enrolled += here
    assert enrolled


async def test_what_an_operator_does_is_recorded_under_its_name(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator:
        stub = aggregator.operator()
        run_id = await proposed(stub)
        await stub.AbortRun(admin_pb2.AbortRunRequest(run_id=run_id, reason="why not"))
        entries = await aggregator.run_registry.store.do(lambda store: audit.entries(store.connection))
        assert [(entry.action, entry.actor) for entry in entries] == [
            ("run_proposed", "spiffe://acme/operator/op"),
            ("run_aborted", "spiffe://acme/operator/op"),
        ]
        assert json.loads(entries[1].detail) == {"reason": "why not"}

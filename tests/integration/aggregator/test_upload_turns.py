"""In a large cohort an update's bytes stay with their sender until the aggregator has a place for them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dcfpca.identity import Role
from dcfpca.methods import method_of
from dcfpca.pki.credential_files import Credentials
from dcfpca.pki.keys import sign
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.simulate import simulate
from dcfpca.spec import parse_spec
from dcfpca.v1 import admin_pb2
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.v1.rounds_pb2_grpc import RoundServiceServicer, RoundServiceStub, add_RoundServiceServicer_to_server
from dcfpca.wire.constants import PROTOCOL
from dcfpca.wire.round_messages import consent_bytes
from dcfpca.wire.tensors import header_of
from participant.link import Link
from tests.support.inputs.chunks import chunks
from tests.support.services.federation import relative
from tests.support.services.honest import honest_sites
from tests.support.services.service import Service, service

PATIENCE = 20.0
NAMES = ("ann", "bob")
PAYLOAD = np.arange(100_000.0).tobytes()


@pytest.fixture(autouse=True)
def crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are a crowd here, and one uploads or is told something at a time."""
    monkeypatch.setattr("aggregator.rpc.rounds.BROADCAST_BYTES", 0)
    monkeypatch.setattr("aggregator.rpc.rounds.TURNS_ABOVE", 1)
    monkeypatch.setattr("participant.link.calls.TURNS_ABOVE", 1)
    monkeypatch.setattr("aggregator.rpc.rounds.TRANSFERS", 1)


async def propose(aggregator: Service, **keys: Any) -> str:
    spec = parse_spec({"method": "gradient", "rows": 4, "rank": 1, "aggregation": "plain", "tolerance": 0} | keys)
    request = admin_pb2.ProposeRunRequest(spec=spec.canonical(), request_id=uuid.uuid4().hex)
    run_id: str = (await aggregator.operator().ProposeRun(request)).run_id
    return run_id


async def enrol(aggregator: Service, run_id: str, name: str, own: Credentials | None = None) -> Any:
    """Consent, and what to call the aggregator with."""
    own = own or aggregator.credentials(Role.PARTICIPANT, name)
    digest = aggregator.run_registry.runners[run_id].run.spec_sha256
    said = consent_bytes(run_id, digest, name, accept=True, private=False, reasons=[])
    stub: Any = RoundServiceStub(aggregator.channel_of(own))
    signature = sign(own.private_key, said)
    await stub.Respond(pb.RespondRequest(run_id=run_id, spec_sha256=digest, accept=True, signature=signature))
    return stub


def update(aggregator: Service, run_id: str) -> tuple[pb.UpdateHeader, bytes]:
    """An update of zeros for the open round."""
    runner = aggregator.run_registry.runners[run_id]
    assert runner.run.attempt is not None
    layout = runner.terms.method.stage(runner.round_sum.consensus.stage).up
    ref = types.RoundRef(run_id=run_id, round=runner.run.attempt.ref.round, attempt=runner.run.attempt.ref.attempt)
    payload = bytes(8 * layout.size)
    return pb.UpdateHeader(ref=ref, tensor=header_of(payload, layout, types.DTYPE_FLOAT64)), payload


async def send_bytes(call: Any, payload: bytes) -> types.Receipt:
    for chunk in chunks(payload):
        await call.write(pb.UpdatePart(chunk=chunk))
    await call.done_writing()
    receipt: types.Receipt = await call
    return receipt


async def test_who_has_no_place_is_told_when_it_has_one(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator, asyncio.timeout(PATIENCE):
        run_id = await propose(aggregator, participants=NAMES, rounds=1)
        ann, bob = [await enrol(aggregator, run_id, name) for name in NAMES]
        header, payload = update(aggregator, run_id)
        first, second = ann.SubmitUpdate(), bob.SubmitUpdate()
        await first.write(pb.UpdatePart(header=header))
        await first.initial_metadata()
        await second.write(pb.UpdatePart(header=header))
        turn = asyncio.ensure_future(second.initial_metadata())
        await bob.ResumeUpload(header)
        assert not turn.done()
        assert (await send_bytes(first, payload)).fate == types.FATE_ACCEPTED
        await turn
        assert (await send_bytes(second, payload)).fate == types.FATE_ACCEPTED


async def test_an_older_participant_that_does_not_wait_is_served_too(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator, asyncio.timeout(PATIENCE):
        run_id = await propose(aggregator, participants=NAMES, rounds=1)
        stubs = [
            await enrol(aggregator, run_id, name, aggregator.credentials(Role.PARTICIPANT, name)) for name in NAMES
        ]
        header, payload = update(aggregator, run_id)
        parts = [pb.UpdatePart(header=header), *(pb.UpdatePart(chunk=chunk) for chunk in chunks(payload))]
        receipts = await asyncio.gather(*(stub.SubmitUpdate(iter(parts)) for stub in stubs))
        assert [receipt.fate for receipt in receipts] == [types.FATE_ACCEPTED] * 2


@asynccontextmanager
async def subscribed(address: str, own: Credentials) -> AsyncIterator[Link]:
    """The link of a participant whose stream is open."""
    link, connected = Link(address, own), asyncio.Event()

    async def listen() -> None:
        hello = pb.SubscribeRequest(protocol=PROTOCOL, software="test", rows=4)
        async for _ in link.subscribe(hello, connected.set):
            pass

    task = asyncio.create_task(listen())
    await connected.wait()
    try:
        yield link
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await link.close()


@asynccontextmanager
async def ready_to_upload(tmp_path: Path) -> AsyncIterator[tuple[Link, pb.UpdateHeader, bytes]]:
    """A run whose first round is open, the link of a participant of it, and that one's update."""
    async with service(tmp_path) as aggregator, asyncio.timeout(PATIENCE):
        run_id = await propose(aggregator, participants=NAMES, rounds=1)
        own = {name: aggregator.credentials(Role.PARTICIPANT, name) for name in NAMES}
        for name in NAMES:
            await enrol(aggregator, run_id, name, own[name])
        async with subscribed(f"127.0.0.1:{aggregator.port}", own["ann"]) as link:
            yield link, *update(aggregator, run_id)


async def test_an_answer_that_needs_no_bytes_ends_the_wait(tmp_path: Path) -> None:
    async with ready_to_upload(tmp_path) as (link, header, payload):
        fates = [(await link.upload(header, payload, len(NAMES))).fate for _ in range(2)]
        assert fates == [types.FATE_ACCEPTED, types.FATE_DUPLICATE]
        header.ref.attempt += 1
        assert (await link.upload(header, payload, len(NAMES))).fate == types.FATE_REJECTED


@pytest.mark.slow
async def test_a_crowd_of_daemons_gets_the_answer_that_any_cohort_gets(tmp_path: Path) -> None:
    draw = np.random.default_rng(8)
    data = {name: draw.standard_normal((4, 5)) for name in ("ann", "bob", "cem")}
    async with service(tmp_path) as aggregator, honest_sites(aggregator, data), asyncio.timeout(PATIENCE):
        run_id = await propose(aggregator, participants=tuple(data), rounds=4)
        runner = aggregator.run_registry.runners[run_id]
        while not runner.run.status.over:
            await runner.changed.wait(runner.changed.version)
        alone = simulate(method_of(runner.spec), [ArrayColumns(data[name]) for name in sorted(data)])
        assert relative(runner.round_sum.consensus.broadcast.tensor, alone.consensus.broadcast.tensor) <= 1e-12


class Bare(RoundServiceServicer):
    """Just enough of an aggregator: drops so many uploads before it takes one."""

    def __init__(self, drops: int = 0) -> None:
        self._drops = drops

    async def Subscribe(self, request: pb.SubscribeRequest, context: Any) -> AsyncIterator[pb.Assignment]:  # noqa: N802
        await context.send_initial_metadata(())
        await asyncio.Event().wait()
        yield pb.Assignment()

    async def ResumeUpload(self, request: pb.UpdateHeader, context: Any) -> pb.ResumeUploadResponse:  # noqa: N802
        return pb.ResumeUploadResponse(offset=0)

    async def SubmitUpdate(self, request_iterator: AsyncIterator[pb.UpdatePart], context: Any) -> types.Receipt:  # noqa: N802
        await context.read()
        if self._drops:
            self._drops -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        await context.send_initial_metadata(())
        arrived = 0
        while (part := await context.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
            arrived += len(part.chunk.data)
        return types.Receipt(fate=types.FATE_ACCEPTED, reason=str(arrived))


@asynccontextmanager
async def bare(root: Path, servicer: Bare) -> AsyncIterator[Link]:
    """A participant's link to it."""
    async with service(root) as consortium:
        mine, own = consortium.credentials(Role.AGGREGATOR, "old"), consortium.credentials(Role.PARTICIPANT, "ann")
        server = grpc.aio.server()
        add_RoundServiceServicer_to_server(servicer, server)
        tls = grpc.ssl_server_credentials([(mine.key_pem, mine.cert_pem)], mine.ca_pem, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", tls)
        await server.start()
        async with subscribed(f"localhost:{port}", own) as link:
            yield link
        await server.stop(None)


async def test_a_connection_that_breaks_in_the_wait_is_followed_by_another_wait(tmp_path: Path) -> None:
    async with bare(tmp_path, Bare(drops=2)) as link, asyncio.timeout(PATIENCE):
        receipt = await link.upload(pb.UpdateHeader(), PAYLOAD, 65)
        assert receipt.reason == str(len(PAYLOAD))

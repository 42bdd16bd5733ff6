"""Peers that do not read, do not write, do not finish a handshake or will not stop: each is cut, and others are not."""

from __future__ import annotations

import asyncio
import ssl
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives import hashes

from aggregator.service.serve import cut_expired
from dcfpca.identity import Role
from dcfpca.pki.credential_files import load_credentials
from dcfpca.v1 import admin_pb2, rounds_pb2
from dcfpca.v1.admin_pb2_grpc import AdminServiceStub
from dcfpca.v1.rounds_pb2_grpc import RoundServiceStub
from dcfpca.wire.constants import PROTOCOL
from tests.support.services.service import Service, service

PATIENCE = 20.0
HELLO = rounds_pb2.SubscribeRequest(protocol=PROTOCOL, software="test", rows=4)
SPEC = b'{"rows": 4, "rank": 1, "participants": ["ann", "bob", "cem"], "enrol_seconds": 600}'
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
PING = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + b"12345678"


def counted(aggregator: Service, method: str, status: str) -> float:
    """How often the service's own metric says that a method ended so."""
    labels = {"method": method, "status": status}
    return aggregator.run_registry.telemetry.registry.get_sample_value("dcfpca_calls_total", labels) or 0


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110  metrics are read, they tell nobody
            await asyncio.sleep(0.02)


async def status_of(call: grpc.aio.Call) -> tuple[grpc.StatusCode, str]:
    async with asyncio.timeout(PATIENCE):
        return await call.code(), await call.details() or ""


async def everything(call: grpc.aio.UnaryStreamCall) -> None:
    while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
        pass


async def proposed(aggregator: Service) -> str:
    request = admin_pb2.ProposeRunRequest(spec=SPEC, request_id=uuid.uuid4().hex)
    run_id: str = (await aggregator.operator().ProposeRun(request)).run_id
    return run_id


async def test_a_reader_that_stops_reading_is_cut_and_told_once_it_reads(tmp_path: Path) -> None:
    async with service(tmp_path, read_seconds=0.4) as aggregator:
        for _ in range(160):
            await aggregator.run_registry.store.record("much_to_say", detail="x" * 200_000)
        stub = AdminServiceStub(aggregator.channel(Role.PARTICIPANT, "ann"))
        call = stub.FetchAuditLog(admin_pb2.FetchAuditLogRequest())
        assert (await call.read()).sequence == 1
        await until(lambda: counted(aggregator, "FetchAuditLog", "DEADLINE_EXCEEDED") == 1)
        with pytest.raises(grpc.aio.AioRpcError, match="nothing was read for") as cut:
            await everything(call)
        assert cut.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_slow_reader_that_reads_on_gets_everything(tmp_path: Path) -> None:
    async with service(tmp_path, read_seconds=5) as aggregator:
        for _ in range(60):
            await aggregator.run_registry.store.record("much_to_say", detail="x" * 200_000)
        stub = AdminServiceStub(aggregator.channel(Role.PARTICIPANT, "ann"))
        got = 0
        async for _ in stub.FetchAuditLog(admin_pb2.FetchAuditLogRequest()):
            await asyncio.sleep(0.01)
            got += 1
        assert got == 60


@pytest.mark.parametrize("method", ["SubmitUpdate", "ExportReconstruction"])
async def test_an_upload_that_never_begins_is_cut(tmp_path: Path, method: str) -> None:
    async with service(tmp_path, upload_seconds=0.2) as aggregator:
        code, details = await status_of(getattr(aggregator.participant("ann"), method)(timeout=PATIENCE))
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "nothing came for 0.2 seconds" in details


async def test_revoking_cuts_an_operators_watch_too(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator:
        run_id = await proposed(aggregator)
        rogue = aggregator.credentials(Role.OPERATOR, "rogue")
        call = AdminServiceStub(aggregator.channel_of(rogue)).WatchRun(admin_pb2.WatchRunRequest(run_id=run_id))
        assert (await call.read()).run_id == run_id
        mark = rogue.certificate.fingerprint(hashes.SHA256()).hex()
        answer = await aggregator.operator().RevokeParticipant(
            admin_pb2.RevokeParticipantRequest(name="rogue", fingerprint=mark)
        )
        assert answer.streams_cut == 1
        code, details = await status_of(call)
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert "revoked" in details


async def test_revoking_cuts_an_upload_under_way(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator:
        own = aggregator.credentials(Role.PARTICIPANT, "ann")
        stub = RoundServiceStub(aggregator.channel_of(own))
        upload, stream = stub.SubmitUpdate(), stub.Subscribe(HELLO)
        await stream.wait_for_connection()
        await until(lambda: aggregator.run_registry.directory.is_connected("ann"))
        answer = await aggregator.operator().RevokeParticipant(admin_pb2.RevokeParticipantRequest(name="ann"))
        assert answer.streams_cut == 2
        assert (await status_of(upload))[0] is grpc.StatusCode.UNAUTHENTICATED
        assert (await status_of(stream))[0] is grpc.StatusCode.UNAUTHENTICATED
        await until(lambda: not aggregator.run_registry.directory.is_connected("ann"))


@pytest.mark.slow
async def test_a_stream_does_not_outlive_its_certificate(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator:
        born = datetime.now(UTC) - timedelta(days=1) + timedelta(seconds=2)
        files = aggregator.identity(Role.PARTICIPANT, "brief", now=born, days=1)
        own = load_credentials(files.ca, files.certificate, files.key, now=datetime.now(UTC))
        call = RoundServiceStub(aggregator.channel_of(own)).Subscribe(HELLO)
        await call.wait_for_connection()
        watcher = asyncio.create_task(cut_expired(aggregator.server))
        assert (await status_of(call))[0] is grpc.StatusCode.UNAUTHENTICATED
        watcher.cancel()


async def test_runs_without_end_are_not_opened_without_end(tmp_path: Path) -> None:
    async with service(tmp_path, max_open_runs=2) as aggregator:
        stub, first = aggregator.operator(), uuid.uuid4().hex
        one = await stub.ProposeRun(admin_pb2.ProposeRunRequest(spec=SPEC, request_id=first))
        await proposed(aggregator)
        code, details = await status_of(stub.ProposeRun(admin_pb2.ProposeRunRequest(spec=SPEC, request_id="one more")))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "2 runs are open" in details
        again = await stub.ProposeRun(admin_pb2.ProposeRunRequest(spec=SPEC, request_id=first))
        assert again.run_id == one.run_id
        await stub.AbortRun(admin_pb2.AbortRunRequest(run_id=one.run_id))
        await proposed(aggregator)


async def test_being_refused_cannot_be_had_without_limit(tmp_path: Path) -> None:
    """Neither by a role that may not make the call, nor with a certificate that was revoked."""
    async with service(tmp_path, calls_per_second=0.001, call_burst=4) as aggregator:
        own = aggregator.credentials(Role.PARTICIPANT, "ann")
        stub, codes = AdminServiceStub(aggregator.channel_of(own)), []
        for _ in range(6):
            codes.append((await status_of(stub.ListRuns(admin_pb2.ListRunsRequest())))[0].name)
        assert codes == ["PERMISSION_DENIED"] * 4 + ["RESOURCE_EXHAUSTED"] * 2
        aggregator.trust.revoke(own.certificate.fingerprint(hashes.SHA256()).hex())
        codes = [(await status_of(stub.ListRuns(admin_pb2.ListRunsRequest())))[0].name for _ in range(6)]
        assert codes == ["UNAUTHENTICATED"] * 4 + ["RESOURCE_EXHAUSTED"] * 2


async def dial(aggregator: Service) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", aggregator.port)


async def hung_up(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_whoever_connects_and_says_nothing_is_hung_up_on(tmp_path: Path) -> None:
    async with service(tmp_path, handshake_seconds=0.3) as aggregator:
        silent = [await dial(aggregator) for _ in range(30)]
        for reader, writer in silent:
            await hung_up(reader)
            writer.close()
        await aggregator.operator().ListRuns(admin_pb2.ListRunsRequest())


async def test_more_connections_than_allowed_are_closed_at_once_and_places_come_free_again(tmp_path: Path) -> None:
    async with service(tmp_path, max_connections=4, handshake_seconds=600) as aggregator:
        held = [await dial(aggregator) for _ in range(4)]
        extra = [await dial(aggregator) for _ in range(4)]
        for reader, writer in extra:
            await hung_up(reader)
            writer.close()
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        await aggregator.operator().ListRuns(admin_pb2.ListRunsRequest(), wait_for_ready=True, timeout=PATIENCE)


async def test_a_flood_of_pings_is_hung_up_on(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator:
        files = aggregator.identity(Role.PARTICIPANT, "ann")
        context = ssl.create_default_context(cafile=str(files.ca))
        context.load_cert_chain(files.certificate, files.key)
        context.set_alpn_protocols(["h2"])
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", aggregator.port, ssl=context, server_hostname="localhost"
        )
        writer.write(PREFACE + 200 * PING)
        async with asyncio.timeout(PATIENCE):
            said = await reader.read()
        assert b"too_many_pings" in said
        writer.close()
        await aggregator.operator().ListRuns(admin_pb2.ListRunsRequest())


async def test_oversize_metadata_is_refused_and_the_next_call_answered(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator:
        stub = aggregator.operator()
        huge = (("x-much", "y" * 200_000),)
        code, _ = await status_of(stub.ListRuns(admin_pb2.ListRunsRequest(), metadata=huge))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        await stub.ListRuns(admin_pb2.ListRunsRequest())

"""Who gets into the real service, by real handshakes, and who is thrown out again."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from aggregator.rpc.server import ServedCertificate
from dcfpca.identity import Role
from dcfpca.operator.connection import channel_to
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import Credentials, SiteFiles, issue_credentials
from dcfpca.v1 import admin_pb2, rounds_pb2
from dcfpca.v1.admin_pb2_grpc import AdminServiceStub
from dcfpca.v1.rounds_pb2_grpc import RoundServiceStub
from dcfpca.wire.addresses import Address
from dcfpca.wire.constants import PROTOCOL
from participant.link import Link
from tests.support.services.service import CHANNEL_OPTIONS, Service, service

HELLO = rounds_pb2.SubscribeRequest(protocol=PROTOCOL, software="test", rows=4)
PATIENCE = 10.0


@pytest.fixture
async def aggregator(tmp_path: Path) -> AsyncIterator[Service]:
    async with service(tmp_path) as made:
        yield made


async def refused(aggregator: Service, tls: grpc.ChannelCredentials | None, host: str = "127.0.0.1") -> grpc.StatusCode:
    target = f"{host}:{aggregator.port}"
    make = grpc.aio.insecure_channel(target) if tls is None else grpc.aio.secure_channel(target, tls, CHANNEL_OPTIONS)
    async with make as channel:
        call = RoundServiceStub(channel).Subscribe(HELLO, timeout=PATIENCE)
        code: grpc.StatusCode = await call.code()
        return code


def tls_of(files: SiteFiles, ca: bytes | None = None) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        ca or files.ca.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes()
    )


async def test_no_certificate_and_plaintext_do_not_get_past_the_handshake(aggregator: Service) -> None:
    only_ca = grpc.ssl_channel_credentials(aggregator.authority.ca_path.read_bytes())
    assert await refused(aggregator, only_ca) is grpc.StatusCode.UNAVAILABLE
    assert await refused(aggregator, None) is grpc.StatusCode.UNAVAILABLE
    assert aggregator.run_registry.directory.connected() == frozenset()


@pytest.mark.parametrize("age", [timedelta(days=31), timedelta(days=-2)], ids=["expired", "not-yet-valid"])
async def test_a_certificate_out_of_its_time_does_not_get_in(aggregator: Service, age: timedelta) -> None:
    files = aggregator.identity(Role.PARTICIPANT, "late", now=datetime.now(UTC) - age)
    assert await refused(aggregator, tls_of(files)) is grpc.StatusCode.UNAVAILABLE


async def test_a_certificate_of_another_ca_does_not_get_in(aggregator: Service, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    stranger = create_authority(tmp_path / "stranger", "acme", now)
    files = issue_credentials(stranger, Role.PARTICIPANT, "ann", tmp_path / "s", now=now)
    tls = tls_of(files, aggregator.authority.ca_path.read_bytes())
    assert await refused(aggregator, tls) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("role", [Role.OPERATOR, Role.AGGREGATOR])
async def test_the_wrong_role_is_told_so(aggregator: Service, role: Role) -> None:
    files = aggregator.identity(role, "wrong")
    assert await refused(aggregator, tls_of(files)) is grpc.StatusCode.PERMISSION_DENIED


async def test_a_participant_does_not_believe_an_aggregator_under_another_name(tmp_path: Path) -> None:
    async with service(tmp_path, hosts=["elsewhere.example.org"]) as aggregator:
        files = aggregator.identity(Role.PARTICIPANT, "ann")
        assert await refused(aggregator, tls_of(files)) is grpc.StatusCode.UNAVAILABLE


def speaking(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    """The context with this version of TLS alone, and every cipher suite that it knows for it."""
    context.set_alpn_protocols(["h2"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


def client_speaking(files: SiteFiles, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.ca))
    context.load_cert_chain(files.certificate, files.key)
    return speaking(context, version)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2])
async def test_the_aggregator_does_not_speak_tls_below_1_3(aggregator: Service, version: ssl.TLSVersion) -> None:
    context = client_speaking(aggregator.identity(Role.PARTICIPANT, "ann"), version)
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        await asyncio.open_connection("127.0.0.1", aggregator.port, ssl=context)


async def test_the_aggregator_speaks_tls_1_3(aggregator: Service) -> None:
    context = client_speaking(aggregator.identity(Role.PARTICIPANT, "ann"), ssl.TLSVersion.TLSv1_3)
    _, writer = await asyncio.open_connection("127.0.0.1", aggregator.port, ssl=context)
    assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
    writer.transport.abort()


@pytest.mark.parametrize(("version", "comes"), [(ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)])
@pytest.mark.parametrize("who", ["participant", "operator"])
async def test_sites_and_operators_do_not_speak_tls_below_1_3(
    aggregator: Service, who: str, version: ssl.TLSVersion, comes: bool
) -> None:
    files = aggregator.identity(Role.AGGREGATOR, "impostor")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    came = asyncio.Event()

    def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set()
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, "localhost", 0, ssl=speaking(context, version))
    address = f"localhost:{server.sockets[0].getsockname()[1]}"
    own = aggregator.credentials(Role(who), "ann")
    code = await _dialled(who, address, own)
    assert (came.is_set(), code) == (comes, grpc.StatusCode.UNAVAILABLE)
    server.close()
    await server.wait_closed()


async def _dialled(who: str, address: str, own: Credentials) -> grpc.StatusCode:
    """What a participant's link, or an operator's channel, makes of whoever listens there."""
    if who == "operator":
        with channel_to(Address.parse(address), own) as channel:
            call = AdminServiceStub(channel).ListRuns
            try:
                await asyncio.to_thread(call, admin_pb2.ListRunsRequest(), timeout=PATIENCE)
            except grpc.RpcError as error:
                return error.code()
    link = Link(address, own)
    try:
        async for _ in link.subscribe(HELLO, lambda: None):
            pass
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        await link.close()
    return grpc.StatusCode.OK


async def subscribed(aggregator: Service, stub: RoundServiceStub, name: str) -> grpc.aio.UnaryStreamCall:
    call = stub.Subscribe(HELLO)
    await call.wait_for_connection()
    while not aggregator.run_registry.directory.is_connected(name):
        await aggregator.run_registry.stage.wait(aggregator.run_registry.stage.version)
    return call


async def end_of(call: grpc.aio.UnaryStreamCall) -> grpc.StatusCode:
    async with asyncio.timeout(PATIENCE):
        return await call.code()


async def test_a_revoked_participant_is_cut_off_and_does_not_come_back(aggregator: Service) -> None:
    credentials = aggregator.credentials(Role.PARTICIPANT, "ann")
    stub = RoundServiceStub(aggregator.channel_of(credentials))
    call = await subscribed(aggregator, stub, "ann")
    answer = await aggregator.operator().RevokeParticipant(
        admin_pb2.RevokeParticipantRequest(name="ann", reason="left the consortium")
    )
    assert answer.streams_cut == 1
    assert await end_of(call) is grpc.StatusCode.UNAUTHENTICATED
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Respond(rounds_pb2.RespondRequest(run_id="x"))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_one_identity_has_one_stream(aggregator: Service) -> None:
    credentials = aggregator.credentials(Role.PARTICIPANT, "ann")
    first = await subscribed(aggregator, RoundServiceStub(aggregator.channel_of(credentials)), "ann")
    second = RoundServiceStub(aggregator.channel_of(credentials)).Subscribe(HELLO)
    assert await end_of(second) is grpc.StatusCode.ALREADY_EXISTS
    assert not first.done()


@pytest.mark.parametrize(
    ("protocol", "side"), [(1, "participant"), (PROTOCOL + 1, "aggregator"), (4_000_000_000, "aggregator")]
)
async def test_another_protocol_is_turned_away_with_what_to_upgrade(
    aggregator: Service, protocol: int, side: str
) -> None:
    call = aggregator.participant("ann").Subscribe(rounds_pb2.SubscribeRequest(protocol=protocol))
    assert await end_of(call) is grpc.StatusCode.FAILED_PRECONDITION
    assert f"upgrade the {side}" in (await call.details() or "")


async def test_an_identity_over_its_rate_is_told_to_slow_down_and_others_are_not(tmp_path: Path) -> None:
    async with service(tmp_path, calls_per_second=1, call_burst=3) as aggregator:
        busy = AdminServiceStub(aggregator.channel(Role.OPERATOR, "busy"))
        codes = []
        for _ in range(5):
            try:
                await busy.ListRuns(admin_pb2.ListRunsRequest())
                codes.append("OK")
            except grpc.aio.AioRpcError as error:
                codes.append(error.code().name)
        assert codes == ["OK"] * 3 + ["RESOURCE_EXHAUSTED"] * 2
        await AdminServiceStub(aggregator.channel(Role.OPERATOR, "calm")).ListRuns(admin_pb2.ListRunsRequest())


async def test_tls_is_given_a_certificate_only_when_it_is_another_one(aggregator: Service) -> None:
    """gRPC frees its TLS state twice when it is replaced during a burst of handshakes, and aborts."""
    served = ServedCertificate(aggregator.trust)
    assert served.credentials()
    assert served._renewed() is None
    aggregator.trust.credentials = aggregator.trust._load()
    assert served._renewed() is not None
    assert served._renewed() is None


async def test_a_burst_of_connections_is_let_in(aggregator: Service) -> None:
    names = [f"p{index}" for index in range(60)]
    stubs = [aggregator.participant(name) for name in names]
    calls = [stub.Subscribe(HELLO, wait_for_ready=True) for stub in stubs]
    async with asyncio.timeout(60):
        while aggregator.run_registry.directory.connected() < set(names):
            await aggregator.run_registry.stage.wait(aggregator.run_registry.stage.version)
    for call in calls:
        call.cancel()

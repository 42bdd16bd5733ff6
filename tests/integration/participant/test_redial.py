"""When a site dials the aggregator anew, and when it keeps the connection it has."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from dcfpca.identity import Role
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import Credentials, issue_credentials, load_credentials
from dcfpca.v1 import rounds_pb2 as pb
from participant.link import Link
from participant.link.calls import Backoff


@pytest.fixture
def papers(tmp_path: Path) -> tuple[Credentials, Credentials]:
    """Of an aggregator and of a participant."""
    now = datetime.now(UTC)
    authority = create_authority(tmp_path / "ca", "acme", now)
    made = []
    for role, name, hosts in ((Role.AGGREGATOR, "agg", ["127.0.0.1"]), (Role.PARTICIPANT, "alpha", [])):
        files = issue_credentials(authority, role, name, tmp_path / name, hosts=hosts, now=now, days=1)
        made.append(load_credentials(files.ca, files.certificate, files.key, now=now, role=role))
    return made[0], made[1]


async def subscribe(link: Link) -> grpc.StatusCode:
    """How the attempt to subscribe ends."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in link.subscribe(pb.SubscribeRequest(), lambda: None):
            pass
    code: grpc.StatusCode = caught.value.code()
    return code


async def test_a_connection_that_does_not_come_about_is_dialled_anew(papers: tuple[Credentials, Credentials]) -> None:
    link = Link("127.0.0.1:9", papers[1])
    stale = link._channel
    assert await subscribe(link) is grpc.StatusCode.UNAVAILABLE
    await link.redial()
    assert link._channel is not stale
    with pytest.raises(grpc.aio.UsageError):
        await stale.unary_unary("/dcfpca.v1.RoundService/Respond", None, None)(b"")
    await link.close()


async def test_a_connection_that_stands_is_kept_whatever_the_aggregator_answers(
    papers: tuple[Credentials, Credentials],
) -> None:
    server, mine = grpc.aio.server(), papers[0]
    tls = grpc.ssl_server_credentials([(mine.key_pem, mine.cert_pem)], mine.ca_pem, require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", tls)
    await server.start()
    link = Link(f"127.0.0.1:{port}", papers[1])
    standing = link._channel
    assert await subscribe(link) is grpc.StatusCode.UNIMPLEMENTED
    await link.redial()
    assert link._channel is standing
    await link.close()
    await server.stop(None)


async def test_of_several_addresses_the_next_one_is_dialled_even_if_a_standby_answers_at_the_first(
    papers: tuple[Credentials, Credentials],
) -> None:
    link = Link("127.0.0.1:9, 127.0.0.1:10", papers[1])
    dialled = []
    for _ in range(3):
        dialled.append(str(link.address))
        assert await subscribe(link) is grpc.StatusCode.UNAVAILABLE
        await link.redial()
    assert dialled == ["127.0.0.1:9", "127.0.0.1:10", "127.0.0.1:9"]
    await link.close()


async def test_waits_grow_to_a_few_seconds_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("participant.link.calls.asyncio.sleep", note)
    backoff = Backoff()
    for _ in range(12):
        await backoff.wait()
    assert waits[0] <= 0.2
    assert all(2.5 <= wait <= 5.0 for wait in waits[6:])
    assert len(set(waits[6:])) > 1, "without jitter all sites come back in one moment"

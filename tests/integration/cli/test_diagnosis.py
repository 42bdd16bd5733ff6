"""Each way in which an aggregator cannot be reached is told apart, against real sockets and real TLS."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest

from dcfpca.errors import BadIdentity, DcfpcaError, Unreachable
from dcfpca.identity import Role
from dcfpca.operator.connection import ConnectionSettings, connected
from dcfpca.pki.ca_directory import Authority, create_authority
from dcfpca.pki.credential_files import SiteFiles, issue_credentials
from dcfpca.wire.addresses import Address, TlsFiles, diagnose

LONG_AGO = timedelta(days=60)


@dataclass(frozen=True)
class Consortium:
    root: Path
    authority: Authority

    def issue(self, role: Role, name: str, *, age: timedelta = timedelta(0), host: str = "127.0.0.1") -> SiteFiles:
        hosts = [host] if role is Role.AGGREGATOR else []
        now = datetime.now(UTC) - age
        return issue_credentials(self.authority, role, name, self.root / name, now=now, hosts=hosts, days=30)


@pytest.fixture
def consortium(tmp_path: Path) -> Consortium:
    return Consortium(tmp_path, create_authority(tmp_path / "ca", "acme", datetime.now(UTC) - 2 * LONG_AGO))


@pytest.fixture
def stranger(tmp_path: Path) -> Consortium:
    """Another consortium of the same name."""
    root = tmp_path / "stranger"
    return Consortium(root, create_authority(root / "ca", "acme", datetime.now(UTC)))


@pytest.fixture
def servers() -> Iterator[list[grpc.Server]]:
    started: list[grpc.Server] = []
    yield started
    for server in started:
        server.stop(None).wait()


def serve(servers: list[grpc.Server], files: SiteFiles) -> Address:
    """A gRPC server that demands a certificate and knows no method."""
    server = grpc.server(ThreadPoolExecutor(2))
    pair = (files.key.read_bytes(), files.certificate.read_bytes())
    tls = grpc.ssl_server_credentials([pair], files.ca.read_bytes(), require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", tls)
    server.start()
    servers.append(server)
    return Address("127.0.0.1", port)


def files_of(site: SiteFiles) -> TlsFiles:
    return TlsFiles(site.ca, site.certificate, site.key)


def asked(address: Address, site: SiteFiles) -> DcfpcaError:
    """The error of a whole command against this address."""
    with pytest.raises(DcfpcaError) as caught, connected(ConnectionSettings(address, files_of(site))) as operator:
        operator.runs()
    return caught.value


def test_a_sound_connection_has_nothing_to_diagnose(consortium: Consortium, servers: list[grpc.Server]) -> None:
    address = serve(servers, consortium.issue(Role.AGGREGATOR, "agg"))
    assert diagnose(address, files_of(consortium.issue(Role.OPERATOR, "op"))) is None


def test_a_server_that_is_no_aggregator_is_named(consortium: Consortium, servers: list[grpc.Server]) -> None:
    address = serve(servers, consortium.issue(Role.AGGREGATOR, "agg"))
    assert "does not offer this call" in str(asked(address, consortium.issue(Role.OPERATOR, "op")))


def test_nothing_listening_is_unreachable(consortium: Consortium) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = Address("127.0.0.1", bound.getsockname()[1])
        error = asked(address, consortium.issue(Role.OPERATOR, "op"))
    assert isinstance(error, Unreachable)
    assert f"nothing listens at {address}" in str(error)
    assert "dcfpca-aggregator serve" in error.hint


def test_an_unknown_host_is_named(consortium: Consortium) -> None:
    error = asked(Address("no-such-host.invalid", 1), consortium.issue(Role.OPERATOR, "op"))
    assert "'no-such-host.invalid' cannot be resolved" in str(error)


def test_a_certificate_for_another_host_is_a_mismatch(consortium: Consortium, servers: list[grpc.Server]) -> None:
    address = serve(servers, consortium.issue(Role.AGGREGATOR, "agg", host="other.example.org"))
    error = asked(address, consortium.issue(Role.OPERATOR, "op"))
    assert isinstance(error, BadIdentity)
    assert "not for the host '127.0.0.1'" in str(error)
    assert "--host 127.0.0.1" in error.hint


def test_an_expired_aggregator_certificate_is_named(consortium: Consortium, servers: list[grpc.Server]) -> None:
    address = serve(servers, consortium.issue(Role.AGGREGATOR, "agg", age=LONG_AGO))
    assert "aggregator's certificate has expired" in str(asked(address, consortium.issue(Role.OPERATOR, "op")))


def test_an_aggregator_of_another_ca_is_not_believed(
    consortium: Consortium, stranger: Consortium, servers: list[grpc.Server]
) -> None:
    address = serve(servers, stranger.issue(Role.AGGREGATOR, "agg"))
    error = asked(address, consortium.issue(Role.OPERATOR, "op"))
    assert "was not issued by the CA in" in str(error)
    assert "--ca" in error.hint


def test_an_aggregator_that_does_not_know_our_ca_is_unexplained_text(
    consortium: Consortium, stranger: Consortium, servers: list[grpc.Server]
) -> None:
    address = serve(servers, stranger.issue(Role.AGGREGATOR, "agg"))
    ours = consortium.issue(Role.OPERATOR, "op")
    error = diagnose(address, TlsFiles(stranger.authority.ca_path, ours.certificate, ours.key))
    assert isinstance(error, BadIdentity)
    assert "refused this certificate" in str(error)


def test_our_own_expired_certificate_is_noticed_before_dialling(consortium: Consortium) -> None:
    error = asked(Address("no-such-host.invalid", 1), consortium.issue(Role.OPERATOR, "op", age=LONG_AGO))
    assert isinstance(error, BadIdentity)
    assert "expired on" in str(error)


@pytest.mark.parametrize(
    ("greeting", "said"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS"), (b"", "closed the connection during the TLS")],
)
def test_a_port_without_tls_is_named(consortium: Consortium, greeting: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(greeting)

        threading.Thread(target=answer, daemon=True).start()
        address = Address("127.0.0.1", server.getsockname()[1])
        error = diagnose(address, files_of(consortium.issue(Role.OPERATOR, "op")))
    assert isinstance(error, Unreachable)
    assert said in str(error)


def test_a_host_that_swallows_packets_is_unexplained_text(consortium: Consortium) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = Address("127.0.0.1", server.getsockname()[1])
        # The queue of a server that never accepts is full after a connection or two; further ones get no answer.
        crowd = [socket.socket() for _ in range(4)]
        for one in crowd:
            one.setblocking(False)
            one.connect_ex((address.host, address.port))
        error = diagnose(address, files_of(consortium.issue(Role.OPERATOR, "op")), seconds=0.3)
        for one in crowd:
            one.close()
    assert isinstance(error, Unreachable)
    assert "did not answer within" in str(error)

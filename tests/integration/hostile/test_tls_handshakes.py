"""Real handshakes over loopback: a certificate of the consortium gets in, TLS itself turns everything else away."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from dcfpca.identity import Role
from dcfpca.pki.ca_directory import Authority, create_authority
from dcfpca.pki.credential_files import SiteFiles, issue_credentials
from dcfpca.pki.keys import new_private_key, private_pem
from dcfpca.pki.trust import verify_peer

METHOD = "/test.Identity/Who"
PATIENCE = 10.0


@dataclass(frozen=True)
class Consortium:
    """A CA, its aggregator's files and the port the aggregator listens on."""

    authority: Authority
    aggregator: SiteFiles
    port: int
    root: Path

    def participant(self, name: str, age: timedelta = timedelta(0)) -> SiteFiles:
        now = datetime.now(UTC) - age
        return issue_credentials(self.authority, Role.PARTICIPANT, name, self.root / name, now=now, days=1)


async def who(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
    """Answer with the identity that the handshake has proved."""
    (certificate,) = context.auth_context()["x509_pem_cert"]
    return certificate


def handlers() -> tuple[grpc.GenericRpcHandler, ...]:
    method = grpc.unary_unary_rpc_method_handler(who)
    return (grpc.method_handlers_generic_handler("test.Identity", {"Who": method}),)


async def serve(files: SiteFiles) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(handlers())
    pair = (files.key.read_bytes(), files.certificate.read_bytes())
    credentials = grpc.ssl_server_credentials([pair], files.ca.read_bytes(), require_client_auth=True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    return server, port


@pytest.fixture
async def consortium(tmp_path: Path) -> AsyncIterator[Consortium]:
    now = datetime.now(UTC)
    # A CA older than any certificate below, so that an expired one was in its time signed by a CA in force.
    authority = create_authority(tmp_path / "ca", "acme", now - timedelta(days=30))
    aggregator = issue_credentials(
        authority, Role.AGGREGATOR, "agg", tmp_path / "agg", now=now, hosts=["localhost", "127.0.0.1"]
    )
    server, port = await serve(aggregator)
    yield Consortium(authority, aggregator, port, tmp_path)
    await server.stop(None)


async def call(target: str, credentials: grpc.ChannelCredentials | None) -> bytes:
    channel = grpc.aio.insecure_channel(target) if credentials is None else grpc.aio.secure_channel(target, credentials)
    async with channel:
        answer: bytes = await channel.unary_unary(METHOD, None, None)(b"", timeout=PATIENCE)
        return answer


async def refused(target: str, credentials: grpc.ChannelCredentials | None) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(target, credentials)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    return str(caught.value.details())


def channel_credentials(files: SiteFiles, ca: bytes | None = None) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        ca or files.ca.read_bytes(), files.key.read_bytes(), files.certificate.read_bytes()
    )


async def test_a_participant_of_the_consortium_gets_in_and_is_known_by_name(consortium: Consortium) -> None:
    files = consortium.participant("hospital-a")
    for host in ("127.0.0.1", "localhost"):
        seen = await call(f"{host}:{consortium.port}", channel_credentials(files))
        identity, _ = verify_peer(
            seen, [consortium.authority.certificate], frozenset(), Role.PARTICIPANT, datetime.now(UTC)
        )
        assert identity.name == "hospital-a"


async def test_no_certificate_is_refused(consortium: Consortium) -> None:
    credentials = grpc.ssl_channel_credentials(consortium.aggregator.ca.read_bytes())
    await refused(f"127.0.0.1:{consortium.port}", credentials)


async def test_plaintext_is_refused(consortium: Consortium) -> None:
    await refused(f"127.0.0.1:{consortium.port}", None)


async def test_an_expired_certificate_is_refused(consortium: Consortium) -> None:
    files = consortium.participant("late", age=timedelta(days=2))
    await refused(f"127.0.0.1:{consortium.port}", channel_credentials(files))


async def test_a_certificate_not_yet_valid_is_refused(consortium: Consortium) -> None:
    files = consortium.participant("early", age=timedelta(days=-2))
    await refused(f"127.0.0.1:{consortium.port}", channel_credentials(files))


async def test_a_certificate_of_another_ca_with_the_same_names_is_refused(consortium: Consortium) -> None:
    now = datetime.now(UTC)
    stranger = create_authority(consortium.root / "stranger", "acme", now)
    files = issue_credentials(stranger, Role.PARTICIPANT, "hospital-a", consortium.root / "s", now=now)
    credentials = channel_credentials(files, ca=consortium.aggregator.ca.read_bytes())
    await refused(f"127.0.0.1:{consortium.port}", credentials)


def signed_by_itself(identity: str) -> tuple[bytes, bytes]:
    key, name, now = new_private_key(), x509.Name([]), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(identity)]), critical=True)
        .sign(key, hashes.SHA256())
    )
    return private_pem(key), certificate.public_bytes(Encoding.PEM)


async def test_a_self_signed_certificate_is_refused(consortium: Consortium) -> None:
    key, certificate = signed_by_itself("spiffe://acme/participant/hospital-a")
    credentials = grpc.ssl_channel_credentials(consortium.aggregator.ca.read_bytes(), key, certificate)
    await refused(f"127.0.0.1:{consortium.port}", credentials)


async def test_a_name_outside_the_consortium_is_refused_although_the_ca_signed_it(consortium: Consortium) -> None:
    key, authority, now = new_private_key(), consortium.authority, datetime.now(UTC)
    outside = x509.UniformResourceIdentifier("spiffe://other/participant/hospital-a")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(2)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([outside]), critical=True)
        .sign(authority.key, hashes.SHA256())
    )
    pem = certificate.public_bytes(Encoding.PEM)
    credentials = grpc.ssl_channel_credentials(authority.ca_path.read_bytes(), private_pem(key), pem)
    await refused(f"127.0.0.1:{consortium.port}", credentials)


async def test_an_aggregator_under_another_host_name_is_not_believed(consortium: Consortium) -> None:
    now = datetime.now(UTC)
    elsewhere = issue_credentials(
        consortium.authority, Role.AGGREGATOR, "other", consortium.root / "other", now=now, hosts=["agg.example.org"]
    )
    server, port = await serve(elsewhere)
    files = consortium.participant("hospital-a")
    details = await refused(f"localhost:{port}", channel_credentials(files))
    await server.stop(None)
    assert "Hostname Verification Check failed" in details or "peer name" in details.lower()


async def test_a_participant_cannot_pose_as_the_aggregator(consortium: Consortium) -> None:
    """Its certificate names no host and is not for servers; even a client that skips the host name sees the latter."""
    files = consortium.participant("hospital-a")
    server, port = await serve(files)
    await refused(f"localhost:{port}", channel_credentials(consortium.participant("hospital-b")))
    context = client_context(consortium.participant("hospital-c"))
    context.check_hostname = False
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        await asyncio.open_connection("127.0.0.1", port, ssl=context)
    await server.stop(None)


def client_context(files: SiteFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.ca))
    context.load_cert_chain(files.certificate, files.key)
    context.set_alpn_protocols(["h2"])
    return context


async def test_tls_1_2_and_1_1_are_refused(consortium: Consortium) -> None:
    context = client_context(consortium.participant("hospital-a"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        await asyncio.open_connection("127.0.0.1", consortium.port, ssl=context)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    # Without this OpenSSL itself would decline to speak 1.1, and the server's answer would not be seen.
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, ConnectionResetError)) as caught:
        await asyncio.open_connection("127.0.0.1", consortium.port, ssl=context)
    assert "no protocols available" not in str(caught.value).lower()

"""The real aggregator inside the test's event loop: server, store, rules and TLS, without a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.config import Config, Limits, StoreSection
from aggregator.config import Server as ServerTable
from aggregator.participant_directory import ParticipantDirectory
from aggregator.rpc.server import Server
from aggregator.run_registry import RunRegistry
from aggregator.store import participants
from aggregator.store.audit import Signer
from aggregator.store.store import Store
from aggregator.store.thread import StoreThread
from aggregator.trust import Trust
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import Authority, create_authority
from dcfpca.pki.credential_files import Credentials, SiteFiles, issue_credentials, load_credentials
from dcfpca.pki.keys import sign
from dcfpca.v1.admin_pb2_grpc import AdminServiceStub
from dcfpca.v1.rounds_pb2_grpc import RoundServiceStub
from tests.support.services.stores import OpenStore

# Every client its own socket: one process plays many.
CHANNEL_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20)]


@dataclass
class Service:
    """A running aggregator and the means to call it as anybody."""

    root: Path
    authority: Authority
    run_registry: RunRegistry
    trust: Trust
    server: Server
    port: int
    channels: list[grpc.aio.Channel] = field(default_factory=list)

    def identity(self, role: Role, name: str, **more: Any) -> SiteFiles:
        """A certificate of this consortium, in a directory of its own."""
        given: dict[str, Any] = {"now": datetime.now(UTC), "days": 30} | more
        if role is Role.AGGREGATOR:
            given["hosts"] = ["localhost"]
        out = self.root / f"{role}-{name}-{len(list(self.root.iterdir()))}"
        return issue_credentials(self.authority, role, name, out, **given)

    def credentials(self, role: Role, name: str) -> Credentials:
        """Its certificate and key, loaded."""
        files = self.identity(role, name)
        return load_credentials(files.ca, files.certificate, files.key, now=datetime.now(UTC), role=role)

    def channel(self, role: Role, name: str) -> grpc.aio.Channel:
        """A channel over mutual TLS as this identity."""
        return self.channel_of(self.credentials(role, name))

    def channel_of(self, own: Credentials) -> grpc.aio.Channel:
        tls = grpc.ssl_channel_credentials(own.ca_pem, own.key_pem, own.cert_pem)
        channel = grpc.aio.secure_channel(f"127.0.0.1:{self.port}", tls, options=CHANNEL_OPTIONS)
        self.channels.append(channel)
        return channel

    def operator(self) -> Any:
        """AdminService as an operator."""
        return AdminServiceStub(self.channel(Role.OPERATOR, "op"))

    def participant(self, name: str) -> Any:
        """RoundService as a participant."""
        return RoundServiceStub(self.channel(Role.PARTICIPANT, name))


@asynccontextmanager
async def service(
    root: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1"), open_store: OpenStore = Store, **limits: Any
) -> AsyncIterator[Service]:
    """An aggregator that listens on a free port of loopback until the end of the block."""
    now = datetime.now(UTC)
    # A CA older than any certificate below, so that an expired one was in its time signed by a CA in force.
    authority = create_authority(root / "ca", "acme", now - timedelta(days=40))
    files = issue_credentials(authority, Role.AGGREGATOR, "agg", root / "agg", now=now, days=30, hosts=hosts)
    table = ServerTable(
        listen="127.0.0.1:0",
        ca=files.ca,
        cert=files.certificate,
        key=files.key,
        crl=authority.crl_path,
        drain_seconds=0,
    )
    config = Config(server=table, store=StoreSection(path=root / "store.db"), limits=Limits(**limits))
    store = open_store(config.store.path)
    trust = Trust(table, participants.revoked(store.connection))
    own = trust.credentials
    signer = Signer(lambda data: sign(own.private_key, data), own.certificate.public_bytes(Encoding.DER))
    thread = StoreThread(store, signer, str(own.identity))
    registry = RunRegistry(thread, ParticipantDirectory(thread))
    server = Server(config, registry, trust, lambda: True)
    await registry.start()
    await server.start()
    made = Service(root, authority, registry, trust, server, server.port)
    try:
        yield made
    finally:
        for channel in made.channels:
            await channel.close(None)
        registry.drain()
        await server.stop()
        await registry.stop()
        thread.close()

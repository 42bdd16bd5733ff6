"""A participant of plain runs in a hundred lines, so that a thousand fit into a few processes. Real mutual TLS."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest
from grpc_reflection.v1alpha.reflection_pb2_grpc import ServerReflectionStub

from dcfpca.identity import Identity, Role
from dcfpca.methods import method_of
from dcfpca.pki.authority import CertificateRequest, sign_certificate
from dcfpca.pki.ca_directory import Authority
from dcfpca.pki.keys import new_private_key, private_pem, sign
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.rpca.stage import Site
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.v1.rounds_pb2_grpc import RoundServiceStub
from dcfpca.wire.constants import PROTOCOL, TURNS_ABOVE
from dcfpca.wire.round_messages import consent_bytes
from dcfpca.wire.tensors import header_of, message_from, size_of
from participant.link.calls import TRANSIENT
from tests.support.inputs.chunks import chunks

OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.keepalive_time_ms", 60_000)]


@dataclass(frozen=True)
class Papers:
    """What one participant shows."""

    name: str
    ca: bytes
    certificate: bytes
    key: bytes


def papers_of(authority: Authority, name: str) -> tuple[Papers, ec.EllipticCurvePrivateKey]:
    """A certificate made in memory; the CA's register is for real ones."""
    key = new_private_key()
    wanted = CertificateRequest(Identity(authority.consortium, Role.PARTICIPANT, name), (), key.public_key())
    made: x509.Certificate = sign_certificate(wanted, authority.certificate, authority.key, datetime.now(UTC), 1)
    ca = authority.certificate.public_bytes(Encoding.PEM)
    return Papers(name, ca, made.public_bytes(Encoding.PEM), private_pem(key)), key


class LightSite:
    """Subscribes, enrols, answers every round, and ends with the run's status."""

    def __init__(self, address: str, papers: Papers, key: ec.EllipticCurvePrivateKey, data: FloatArray) -> None:
        tls = grpc.ssl_channel_credentials(papers.ca, papers.key, papers.certificate)
        self._channel = grpc.aio.secure_channel(address, tls, options=OPTIONS)
        self._stub: Any = RoundServiceStub(self._channel)
        self._name, self._key, self._data = papers.name, key, data
        self._spec: RunSpec | None = None
        self._site: Site | None = None
        self._last = (-1, b"")
        self._crowd = math.inf

    async def take_part(self, pause: Callable[[], Awaitable[None]]) -> str:
        """Everything up to the end of the run; a broken connection is tried again after a pause, as a daemon would."""
        try:
            while True:
                try:
                    return await self._listen()
                except grpc.aio.AioRpcError as error:
                    if error.code() not in TRANSIENT:
                        raise
                await pause()
        finally:
            await self._channel.close(None)

    async def use_connection(self, size: int) -> None:
        """Carry so many bytes to the aggregator, which turns them away and keeps nothing, and some back from it.

        A connection keeps buffers for both directions once more than 10 kB went that way.
        """
        junk = pb.UpdateHeader(ref=types.RoundRef(run_id="none"), ticket=bytes(size))
        with suppress(grpc.aio.AioRpcError):
            await self._stub.ResumeUpload(junk)
        question = ServerReflectionRequest(file_by_filename="google/protobuf/descriptor.proto")
        reflection: Any = ServerReflectionStub(self._channel).ServerReflectionInfo(iter([question] * 2))
        async for _ in reflection:
            pass

    async def _listen(self) -> str:
        hello = pb.SubscribeRequest(protocol=PROTOCOL, software="light", rows=self._data.shape[0])
        stream = self._stub.Subscribe(hello, wait_for_ready=True)
        async for assignment in stream:
            match assignment.WhichOneof("what"):
                case "run_proposed":
                    await self._enrol(assignment.run_id, assignment.run_proposed)
                case "run_key_wanted" | "roster_closed" | "group_shares_relayed":
                    await self._set_up(assignment)
                case "round_opened":
                    await self._answer(assignment.round_opened)
                case "run_finished":
                    return str(assignment.run_finished.status)
        return "the stream ended"

    async def _enrol(self, run_id: str, proposed: pb.RunProposed) -> None:
        self._spec = parse_spec(proposed.spec)
        self._site = self._site or method_of(self._spec).site(ArrayColumns(self._data))
        digest = proposed.spec_sha256
        said = consent_bytes(run_id, digest, self._name, accept=True, private=False, reasons=[])
        request = pb.RespondRequest(run_id=run_id, spec_sha256=digest, accept=True, signature=sign(self._key, said))
        await self._stub.Respond(request)

    async def _set_up(self, assignment: pb.Assignment) -> None:
        raise AssertionError("a plain run has no set-up")

    async def _consensus(self, opened: pb.RoundOpened) -> bytes:
        if opened.inline_consensus or not size_of(opened.consensus):
            return opened.inline_consensus
        request = pb.FetchConsensusRequest(run_id=opened.ref.run_id, round=opened.ref.round)
        return b"".join([part.chunk.data async for part in self._stub.FetchConsensus(request)])

    async def _answer(self, opened: pb.RoundOpened) -> None:
        assert self._spec is not None
        assert self._site is not None
        method, round = method_of(self._spec), opened.ref.round
        stage = method.stage(opened.stage)
        consensus = Consensus(round, stage.name, message_from(stage.down, await self._consensus(opened)))
        if self._last[0] != round:
            # A round is computed once, whatever becomes of the connection: the site's state moves on with it.
            self._last = (round, self._site.answer(consensus).flat().astype("<f8").tobytes())
        payload = self._last[1]
        tensor = header_of(payload, stage.up, types.DTYPE_FLOAT64)

        async def parts() -> AsyncIterator[pb.UpdatePart]:
            yield pb.UpdatePart(header=pb.UpdateHeader(ref=opened.ref, tensor=tensor))
            if len(opened.cohort) > TURNS_ABOVE:
                await call.initial_metadata()
            for chunk in chunks(payload):
                yield pb.UpdatePart(chunk=chunk)

        call = self._stub.SubmitUpdate(parts())
        await call

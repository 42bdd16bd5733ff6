"""Calls to the aggregator, made again where that can help, and only there."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import grpc

from dcfpca.errors import BadMessage
from dcfpca.pki import Credentials
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import rounds_pb2_grpc as stubs
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire import Assembly, chunks, whole_update
from dcfpca.wire_constants import CHUNK_BYTES, TURNS, WHOLE

T = TypeVar("T")

_SUBMIT_WHOLE = f"/{pb.DESCRIPTOR.services_by_name['RoundService'].full_name}/SubmitWhole"
CALL_SECONDS = 30.0
GRACE_SECONDS = 20.0
# A stream may take as long as its bytes do; what must not happen is that nothing moves, which keepalive notices.
STREAM_SECONDS = 3600.0
TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        # The aggregator failed at the call; it may be put right while the round is open, and the call is idempotent.
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
_OPTIONS = [
    # A peer whose machine or network went away says nothing: it is missed after twenty seconds.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Our own backoff decides when to try; gRPC's must not stand in its way.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    # An aggregator that was moved, or restarted as a container, comes back under another address.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # All connections of one process to one address would otherwise share one socket, across credentials.
    ("grpc.use_local_subchannel_pool", 1),
]


class Renewed(Exception):
    """The connection was closed by ourselves, to go on under renewed credentials."""


class Backoff:
    """Waits that grow from a fifth of a second to `most`, each with jitter so that sites do not come back at once."""

    def __init__(self, most: float = 5.0) -> None:
        self._most = most
        self._next = 0.2

    def reset(self) -> None:
        """Begin again with short waits."""
        self._next = 0.2

    async def wait(self) -> None:
        """Wait once."""
        seconds, self._next = self._next, min(self._next * 2, self._most)
        await asyncio.sleep(seconds * random.uniform(0.5, 1.0))  # noqa: S311  (jitter is no secret)


class Link:
    """Calls to the aggregator. The sending half is for `egress` alone; the daemon uses `subscribe` and `fetch`."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self._address, self._credentials = address, credentials
        self._channel = _channel(address, credentials)
        self._stub: Any = stubs.RoundServiceStub(self._channel)
        self._subscription: Any = None
        self._crowd, self._whole = math.inf, 0

    async def renew(self, credentials: Credentials) -> None:
        """Go on under other credentials: calls under way are made again over the new connection."""
        self._credentials = credentials
        old = self._replace_channel()
        if self._subscription is not None:
            self._subscription.cancel()
        await old.close(GRACE_SECONDS)

    async def redial(self) -> None:
        """Dial anew where the connection does not come about.

        The aggregator may have another address by now, and a channel may hold on to the one it knew, or wait longer
        and longer. Calls under way, which get nowhere, are made again over the new connection.
        """
        if self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            await self._replace_channel().close(None)

    def _replace_channel(self) -> grpc.aio.Channel:
        old, self._channel = self._channel, _channel(self._address, self._credentials)
        self._stub = stubs.RoundServiceStub(self._channel)
        return old

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close(None)

    async def subscribe(
        self, hello: pb.SubscribeRequest, connected: Callable[[], None]
    ) -> AsyncIterator[pb.Assignment]:
        """Assignments of one connection; raises grpc.aio.AioRpcError when it breaks or is turned away."""
        call = self._subscription = self._stub.Subscribe(hello)
        channel = self._channel
        try:
            await call.wait_for_connection()
            self._crowd, self._whole = customs_of(await call.initial_metadata())
            connected()
            async for assignment in call:
                yield assignment
        except asyncio.CancelledError:
            if channel is self._channel:
                raise
            raise Renewed from None
        finally:
            # Who answers next may be an older aggregator, which knows neither turns nor updates in one message.
            self._crowd, self._whole = math.inf, 0
            call.cancel()

    async def respond(self, request: pb.RespondRequest) -> types.Receipt:
        """Answer a proposal."""
        return await self._call("Respond", request)

    async def advertise(self, request: pb.AdvertiseKeysRequest) -> types.Receipt:
        """Step 1 of the secure sum."""
        return await self._call("AdvertiseKeys", request)

    async def share(self, request: pb.ShareKeysRequest) -> types.Receipt:
        """Step 2."""
        return await self._call("ShareKeys", request)

    async def state_bound(self, request: pb.StateBoundRequest) -> types.Receipt:
        """Step 3."""
        return await self._call("StateBound", request)

    async def attest(self, request: pb.AttestSurvivorsRequest) -> types.Receipt:
        """Step 5."""
        return await self._call("AttestSurvivors", request)

    async def unmask(self, request: pb.UnmaskRequest) -> types.Receipt:
        """Step 6."""
        return await self._call("Unmask", request)

    async def report(self, request: pb.ReportProgressRequest) -> types.Receipt:
        """How far the local step has come."""
        return await self._call("ReportProgress", request)

    async def upload(self, header: pb.UpdateHeader, payload: bytes, cohort: int) -> types.Receipt:
        """Send an update; after a broken connection only what has not arrived.

        In a large cohort the header goes alone, and the bytes when the aggregator has a place for them. In a small
        one a small update is one message.
        """

        async def once(first: bool) -> types.Receipt:
            if len(payload) <= self._whole and cohort <= self._crowd:
                return await self._submit_whole(header, payload)
            offset = 0 if first else (await self._stub.ResumeUpload(header, timeout=CALL_SECONDS)).offset
            waits = cohort > self._crowd

            async def parts() -> AsyncIterator[pb.UpdatePart]:
                yield pb.UpdatePart(header=header)
                if waits:
                    # Also comes where there is no place but an answer: late, a duplicate, an error.
                    await call.initial_metadata()
                for chunk in chunks(payload, offset):
                    yield pb.UpdatePart(chunk=chunk)

            call: Any = self._stub.SubmitUpdate(parts(), timeout=STREAM_SECONDS)
            receipt: types.Receipt = await call
            return receipt

        return await _patiently(once)

    async def _submit_whole(self, header: pb.UpdateHeader, payload: bytes) -> types.Receipt:
        call: Any = self._channel.unary_unary(_SUBMIT_WHOLE, None, types.Receipt.FromString)
        receipt: types.Receipt = await call(whole_update(header, payload), timeout=CALL_SECONDS)
        return receipt

    async def export(self, header: pb.ExportHeader, path: Path) -> types.Receipt:
        """Send one file."""

        async def parts() -> AsyncIterator[pb.ExportPart]:
            yield pb.ExportPart(header=header)
            with path.open("rb") as file:
                offset = 0
                while data := file.read(CHUNK_BYTES):
                    yield pb.ExportPart(chunk=types.Chunk(offset=offset, data=data))
                    offset += len(data)

        async def once(_: bool) -> types.Receipt:
            receipt: types.Receipt = await self._stub.ExportReconstruction(parts(), timeout=STREAM_SECONDS)
            return receipt

        return await _patiently(once)

    async def refuse_export(self, refusal: pb.ExportRefusal) -> types.Receipt:
        """Send the refusal."""

        async def parts() -> AsyncIterator[pb.ExportPart]:
            yield pb.ExportPart(refusal=refusal)

        async def once(_: bool) -> types.Receipt:
            receipt: types.Receipt = await self._stub.ExportReconstruction(parts(), timeout=CALL_SECONDS)
            return receipt

        return await _patiently(once)

    async def revocation_list(self) -> bytes:
        """The consortium's revocation list (PEM) as the aggregator has it; not yet verified."""

        async def once(_: bool) -> bytes:
            answer: Any = await self._stub.FetchRevocationList(pb.FetchRevocationListRequest(), timeout=CALL_SECONDS)
            pem: bytes = answer.pem
            return pem

        return await _patiently(once)

    async def fetch(self, request: pb.FetchConsensusRequest, expected: types.TensorHeader) -> bytearray:
        """The bytes of a consensus whose header is known, whole and digest-checked, across broken connections."""
        assembly = Assembly(expected)

        async def once(_: bool) -> bytearray:
            request.offset = assembly.received
            async for part in self._stub.FetchConsensus(request, timeout=STREAM_SECONDS):
                if part.WhichOneof("part") == "header":
                    if part.header != expected:
                        raise BadMessage("the consensus that was streamed is not the one that was announced")
                else:
                    assembly.add(part.chunk)
            return assembly.finish()

        return await _patiently(once)

    async def _call(self, method: str, request: object) -> types.Receipt:
        async def once(_: bool) -> types.Receipt:
            receipt: types.Receipt = await getattr(self._stub, method)(request, timeout=CALL_SECONDS)
            return receipt

        return await _patiently(once)


async def _patiently(once: Callable[[bool], Awaitable[T]]) -> T:
    """Try until it works or trying again cannot help; the caller cancels when nobody wants the answer any more."""
    backoff, first = Backoff(), True
    while True:
        try:
            return await once(first)
        except grpc.aio.AioRpcError as error:
            if error.code() not in TRANSIENT:
                said, _, hint = (error.details() or error.code().name).partition("\nhint: ")
                raise BadMessage(f"the aggregator turned a message away: {said}", hint) from error
        except (grpc.aio.UsageError, asyncio.CancelledError):
            # gRPC cancels calls when their channel is replaced by one with renewed credentials; that is not for us.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
        first = False
        await backoff.wait()


def customs_of(metadata: Any) -> tuple[float, int]:
    """How updates are sent: the largest cohort in which nobody waits for a turn, and the most bytes in one message.

    An older aggregator knows neither turns nor updates in one message.
    """
    said = dict(metadata or ())
    turns, whole = _number(said.get(TURNS)), _number(said.get(WHOLE))
    return math.inf if turns is None else turns, min(whole or 0, CHUNK_BYTES)


def _number(said: Any) -> int | None:
    return int(said) if isinstance(said, str) and said.isascii() and said.isdecimal() else None


def _channel(address: str, credentials: Credentials) -> grpc.aio.Channel:
    secrets = grpc.ssl_channel_credentials(credentials.ca_pem, credentials.key_pem, credentials.cert_pem)
    return grpc.aio.secure_channel(address, secrets, options=_OPTIONS)

"""Calls to the aggregator, retried for as long as a retry can help."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dcfpca.errors import BadMessage
from dcfpca.pki.credential_files import Credentials
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import rounds_pb2_grpc as stubs
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.addresses import Address
from dcfpca.wire.constants import CHUNK_BYTES, TURNS_ABOVE
from dcfpca.wire.tensors import (
    Assembly,
    Buffer,
    ChunkView,
    DigestedBytes,
    TensorFacts,
    encoded_chunks,
    fits_one_message,
    read_tensor_part,
    size_of,
    whole_update,
)

T = TypeVar("T")

_SERVICE = pb.DESCRIPTOR.services_by_name["RoundService"].full_name
# Called without the generated stub, with tensors that are encoded and read without copies.
_SUBMIT_WHOLE, _SUBMIT_UPDATE, _FETCH_CONSENSUS = (
    f"/{_SERVICE}/{method}" for method in ("SubmitWhole", "SubmitUpdate", "FetchConsensus")
)
Request = (
    pb.RespondRequest
    | pb.AdvertiseRunKeyRequest
    | pb.ShareGroupSecretRequest
    | pb.ReportMisfitRequest
    | pb.ComplainRequest
    | pb.ReportProgressRequest
)
METHODS: dict[type, str] = {
    pb.RespondRequest: "Respond",
    pb.AdvertiseRunKeyRequest: "AdvertiseRunKey",
    pb.ShareGroupSecretRequest: "ShareGroupSecret",
    pb.ReportMisfitRequest: "ReportMisfit",
    pb.ComplainRequest: "Complain",
    pb.ReportProgressRequest: "ReportProgress",
}
CALL_SECONDS = 30.0
GRACE_SECONDS = 20.0
# A stream may take long if it has many bytes; one that has stalled is detected by keepalive.
STREAM_SECONDS = 3600.0
TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        # The aggregator failed; it may be repaired while the round is open, and every call is idempotent.
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)
_OPTIONS = [
    # The header of a sum carries the method's memory, which in a private run holds the sums of earlier rounds.
    ("grpc.max_receive_message_length", 64 << 20),
    # An aggregator whose machine or network is gone is noticed after twenty seconds. gRPC pings no more often; where
    # there is a standby, `Connection.watch_standbys` finds out sooner that it serves.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # `Backoff` decides when to retry; gRPC's own backoff must not add to it.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 500),
    # A moved aggregator, or a restarted container, may have another address.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Otherwise all channels of a process to one address share a socket, even with different credentials.
    ("grpc.use_local_subchannel_pool", 1),
]


TOO_LARGE = "the aggregator sends more in one message than a site accepts"


class StreamReplaced(Exception):
    """The stream was closed by this side, to be opened again with renewed credentials or at another address."""


class Backoff:
    """Waits that double from 0.2 s to `most`, with jitter so that sites do not reconnect at the same moment."""

    def __init__(self, most: float = 5.0) -> None:
        self._most = most
        self._next = 0.2

    def reset(self) -> None:
        """Start again with the shortest wait."""
        self._next = 0.2

    async def wait(self) -> None:
        """Wait once."""
        seconds, self._next = self._next, min(self._next * 2, self._most)
        await asyncio.sleep(seconds * random.uniform(0.5, 1.0))  # noqa: S311  (jitter is no secret)


class Link:
    """Calls to the aggregator. The sending half is for `egress` alone; the daemon uses `subscribe` and `fetch`."""

    def __init__(self, addresses: str, credentials: Credentials, proxy: str = "") -> None:
        """`addresses`: HOST:PORT, or several with commas between them, which are tried in turn."""
        self._addresses, self._credentials = Address.parse_all(addresses, proxy), credentials
        self._channel = self._dialled(self.address)
        self._stub: Any = stubs.RoundServiceStub(self._channel)
        self._subscription: Any = None
        self._probes: dict[Address, grpc.aio.Channel] = {}
        self.flooded = False
        """Whether the channel was replaced last because of a message that was too large."""

    @property
    def address(self) -> Address:
        """Where the calls go at present."""
        return self._addresses[0]

    @property
    def has_standby(self) -> bool:
        """Whether there is another address to go to."""
        return len(self._addresses) > 1

    @property
    def longest_wait(self) -> float:
        """The longest pause between two attempts, in seconds; short with a standby, which takes over within seconds."""
        return 1.0 if self.has_standby else 5.0

    def _dialled(self, address: Address) -> grpc.aio.Channel:
        own = self._credentials
        secrets = grpc.ssl_channel_credentials(own.ca_pem, own.key_pem, own.cert_pem)
        return grpc.aio.secure_channel(str(address), secrets, options=[*_OPTIONS, address.channel_option])

    async def serving_elsewhere(self, seconds: float) -> Address | None:
        """Another address than the present one at which an aggregator says within this time that it serves."""
        for address in self._addresses[1:]:
            # Kept open: a thousand sites that made a connection for each question would keep a standby busy.
            if address not in self._probes:
                self._probes[address] = self._dialled(address)
            with suppress(grpc.aio.AioRpcError, grpc.aio.UsageError):
                check = health_pb2_grpc.HealthStub(self._probes[address]).Check
                answer = await check(health_pb2.HealthCheckRequest(), timeout=seconds)
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return address
        return None

    async def move_to(self, address: Address) -> None:
        """Go on at this address; calls under way are retried there."""
        self._addresses = (address, *(other for other in self._addresses if other != address))
        old = self._replace_channel()
        if self._subscription is not None:
            self._subscription.cancel()
        await old.close(None)

    async def renew(self, credentials: Credentials) -> None:
        """Replace the credentials; calls under way are retried over the new connection."""
        self._credentials = credentials
        await self._close_probes()
        old = self._replace_channel()
        if self._subscription is not None:
            self._subscription.cancel()
        await old.close(GRACE_SECONDS)

    async def redial(self, *, anew: bool = False) -> None:
        """Replace the channel unless it is connected, or in any case; with several addresses, go on to the next.

        The aggregator may have another address by now, while a channel keeps the address it resolved, or waits ever
        longer. A standby is connected and does not serve. Calls under way are retried over the new connection.
        """
        self._addresses = (*self._addresses[1:], self._addresses[0])
        if anew or len(self._addresses) > 1 or self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            await self._replace_channel().close(None)

    def _replace_channel(self) -> grpc.aio.Channel:
        old, self._channel = self._channel, self._dialled(self.address)
        self._stub, self.flooded = stubs.RoundServiceStub(self._channel), False
        return old

    async def close(self) -> None:
        """Close every connection."""
        await self._close_probes()
        await self._channel.close(None)

    async def _close_probes(self) -> None:
        probes, self._probes = self._probes, {}
        for channel in probes.values():
            await channel.close(None)

    async def subscribe(
        self, hello: pb.SubscribeRequest, connected: Callable[[], None]
    ) -> AsyncIterator[pb.Assignment]:
        """Assignments of one connection; raises grpc.aio.AioRpcError when it breaks or is refused."""
        call = self._subscription = self._stub.Subscribe(hello)
        channel = self._channel
        try:
            await call.wait_for_connection()
            await call.initial_metadata()
            connected()
            async for assignment in call:
                yield assignment
        except asyncio.CancelledError:
            if channel is self._channel:
                raise
            raise StreamReplaced from None
        finally:
            call.cancel()

    async def send(self, request: Request) -> types.Receipt:
        """Make the call that carries this message."""
        method = METHODS[type(request)]

        return await self._retried(lambda _: getattr(self._stub, method)(request, timeout=CALL_SECONDS))

    async def upload(self, header: pb.UpdateHeader, payload: Buffer, cohort: int) -> types.Receipt:
        """Send an update; after a broken connection, only the bytes that have not arrived.

        In a large cohort the header is sent first, and the bytes once the aggregator is ready for them. In a small
        cohort an update that fits is sent as one message; if the call breaks and it is large, in pieces from then on.
        """

        async def once(first: bool) -> Any:
            size, waits = len(payload), cohort > TURNS_ABOVE
            if not waits and fits_one_message(size, cohort) and (first or size <= CHUNK_BYTES):
                send: Any = self._channel.unary_unary(_SUBMIT_WHOLE, None, types.Receipt.FromString)
                timeout = CALL_SECONDS if size <= CHUNK_BYTES else STREAM_SECONDS
                return await send(whole_update(header, payload), timeout=timeout)
            offset = 0 if first else (await self._stub.ResumeUpload(header, timeout=CALL_SECONDS)).offset

            async def parts() -> AsyncIterator[bytes]:
                yield pb.UpdatePart(header=header).SerializeToString()
                if waits:
                    # Also arrives when the call is answered at once: late, a duplicate, an error.
                    await call.initial_metadata()
                for part in encoded_chunks(payload, offset):
                    yield part

            submit: Any = self._channel.stream_unary(_SUBMIT_UPDATE, None, types.Receipt.FromString)
            call: Any = submit(parts(), timeout=STREAM_SECONDS)
            return await call

        return await self._retried(once)

    async def export(self, header: pb.ExportHeader, path: Path) -> types.Receipt:
        """Send one file of the reconstruction."""

        async def parts() -> AsyncIterator[pb.ExportPart]:
            yield pb.ExportPart(header=header)
            with path.open("rb") as file:
                offset = 0
                while data := file.read(CHUNK_BYTES):
                    yield pb.ExportPart(chunk=types.Chunk(offset=offset, data=data))
                    offset += len(data)

        return await self._retried(lambda _: self._stub.ExportReconstruction(parts(), timeout=STREAM_SECONDS))

    async def refuse_export(self, refusal: pb.ExportRefusal) -> types.Receipt:
        """Send the reason why the reconstruction is not exported."""
        parts = [pb.ExportPart(refusal=refusal)]
        return await self._retried(lambda _: self._stub.ExportReconstruction(iter(parts), timeout=CALL_SECONDS))

    async def revocation_list(self) -> bytes:
        """The consortium's revocation list (PEM) as the aggregator has it; not yet verified."""
        asked = pb.FetchRevocationListRequest()
        answer = await self._retried(lambda _: self._stub.FetchRevocationList(asked, timeout=CALL_SECONDS))
        return bytes(answer.pem)

    async def fetch(self, run_id: str, round: int, expected: TensorFacts, *, final: bool = False) -> DigestedBytes:
        """The complete bytes of an announced consensus, checked against its digest; resumes broken downloads."""
        request, assembly = pb.FetchConsensusRequest(run_id=run_id, round=round, final=final), Assembly(expected)

        async def once(_: bool) -> DigestedBytes:
            request.offset = assembly.received
            encode = pb.FetchConsensusRequest.SerializeToString
            stream: Any = self._channel.unary_stream(_FETCH_CONSENSUS, encode, read_tensor_part)
            async for part in stream(request, timeout=STREAM_SECONDS):
                if isinstance(part, ChunkView):
                    assembly.add(part)
                elif part.WhichOneof("part") != "header":
                    assembly.add(part.chunk)
                elif _facts(part.header) != _facts(expected):
                    raise BadMessage("the consensus that was streamed is not the one that was announced")
            return assembly.finish()

        return await self._retried(once)

    async def fetch_sum(self, run_id: str, round: int, most: int) -> tuple[pb.SumHeader, Buffer]:
        """The sum of a round with its header, as the aggregator shows it and not yet verified; BadMessage above `most`
        bytes."""
        request = pb.FetchSumRequest(run_id=run_id, round=round)

        async def once(_: bool) -> tuple[pb.SumHeader, Buffer]:
            header, assembly = pb.SumHeader(), None
            async for part in self._stub.FetchSum(request, timeout=STREAM_SECONDS):
                if part.WhichOneof("part") == "header":
                    header.CopyFrom(part.header)
                    if size_of(header.tensor) > most:
                        raise BadMessage("the aggregator announces a sum that is larger than the updates it is made of")
                    assembly = Assembly(header.tensor)
                elif assembly is None:
                    raise BadMessage("a sum was streamed without its header")
                else:
                    assembly.add(part.chunk)
            if assembly is None:
                raise BadMessage("the aggregator streamed no sum")
            return header, assembly.finish().data

        return await self._retried(once)

    async def _retried(self, once: Callable[[bool], Awaitable[T]]) -> T:
        """Retry until the call succeeds; BadMessage when a retry cannot help. Callers cancel what is no longer needed.

        `once` hears whether this is the first attempt.
        """
        backoff: Backoff | None = None
        while True:
            try:
                return await once(backoff is None)
            except grpc.aio.AioRpcError as error:
                if is_too_large(error):
                    # What gRPC has read of a message that it refuses is kept until the connection ends.
                    old, self.flooded = self._replace_channel(), True
                    await old.close(None)
                    raise BadMessage(f"{TOO_LARGE}: {error.details()}") from error
                if error.code() not in TRANSIENT:
                    said, _, hint = (error.details() or error.code().name).partition("\nhint: ")
                    raise BadMessage(f"the aggregator rejected a message: {said}", hint) from error
            except (grpc.aio.UsageError, asyncio.CancelledError):
                # gRPC cancels the calls of a replaced channel; only a cancellation of this task itself counts.
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
            backoff = backoff or Backoff(self.longest_wait)
            await backoff.wait()


def is_too_large(error: grpc.aio.AioRpcError) -> bool:
    """Whether gRPC refused a message for its size."""
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in (error.details() or "")


def _facts(header: TensorFacts) -> tuple[object, ...]:
    return header.dtype, header.rows, header.columns, header.scalars, header.sha256

"""Receiving an update: its header is checked against the spec before a byte is stored, then chunk by chunk.

Transfers of all kinds have slots, so that memory does not grow with the peers, and a limit on silence.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from grpc import aio

from aggregator.rpc.answers import TooSlow
from aggregator.run import events
from aggregator.run.attempts import ACCEPTED, Reply, out_of_turn
from aggregator.runner import Chunk, Runner
from aggregator.store.thread import StoreThread
from aggregator.store.update_files import UpdateKey
from dcfpca.errors import BadMessage
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import DTYPE_FLOAT64, DTYPE_UINT32
from dcfpca.wire.constants import CHUNK_BYTES, MESSAGE_BYTES
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import ref_from_wire
from dcfpca.wire.tensors import Buffer, check_header

_REJECTED = Reply(Fate.REJECTED, "a different update has begun to arrive in this attempt before")


class UpdateChunk(NamedTuple):
    """A chunk of an update, taken out of its message once: every access to a bytes field of protobuf copies it."""

    offset: int
    data: Buffer


class TransferSlots:
    """Limits concurrent transfers overall, and to one per participant."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._own: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, who: str) -> AsyncIterator[None]:
        """Hold a slot for one transfer, waiting until one is free."""
        self._waiting[who] += 1
        try:
            async with self._own.setdefault(who, asyncio.Lock()), self._free:
                yield
        finally:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who], self._own[who]


class TimedReader:
    """The messages of a call; raises TooSlow when the next one takes longer than `pause` seconds.

    Reads from the call itself and not from gRPC's iterator, which keeps its last message until the garbage collector
    runs: with many participants, that holds the updates of a round in memory twice.
    """

    def __init__(self, context: aio.ServicerContext[Any, Any], pause: float) -> None:
        self._context, self._pause = context, pause

    def __aiter__(self) -> TimedReader:
        return self

    async def __anext__(self) -> Any:
        try:
            async with asyncio.timeout(self._pause):
                part = await self._context.read()
        except TimeoutError:
            raise TooSlow(f"nothing came for {self._pause:g} seconds in the middle of an upload") from None
        if part is aio.EOF:  # type: ignore[attr-defined]  # the stubs forget it
            raise StopAsyncIteration
        return part


@dataclass(frozen=True, slots=True)
class IntakeResources:
    """Resources shared by all intakes of a service. `in_progress` holds the open uploads by run and participant."""

    store: StoreThread
    slots: TransferSlots
    in_progress: dict[tuple[str, str], asyncio.Future[Chunk | None]] = field(default_factory=dict)


class UpdateIntake:
    """Receives one update; what was received before a broken connection is kept and need not be sent again."""

    def __init__(self, runner: Runner, resources: IntakeResources, who: str, header: pb.UpdateHeader) -> None:
        self.runner, self._who, self._header = runner, who, header
        self._resources, self._store = resources, resources.store
        self.key = UpdateKey(ref_from_wire(header.ref), who, header.tensor.sha256)
        self._files, self._slot = resources.store.store.updates, (runner.run.run_id, who)
        self._size = 0

    async def take(self, parts: AsyncIterator[UpdateChunk], your_turn: Callable[[], Awaitable[None]]) -> Reply:
        """Receive the chunks and return the reply. `your_turn` tells the sender that it has a slot now.

        Raises BadMessage on what the spec does not allow.
        """
        if (answer := await self._answer_to_header()) is not None:
            return answer
        async with self._resources.slots.hold(self._who):
            await your_turn()
            return _REJECTED if await self._has_other() else await self._post(await self._alone(parts))

    async def take_whole(self, data: Buffer) -> Reply:
        """The same for an update in one message."""
        if (answer := await self._answer_to_header()) is not None:
            return answer
        self._check(UpdateChunk(0, data), 0, MESSAGE_BYTES)
        if len(data) != self._size:
            raise BadMessage(f"the upload ended after {len(data)} of {self._size} bytes")
        async with self._resources.slots.hold(self._who):
            if await self._has_other():
                return _REJECTED
            if hashlib.sha256(data).digest() != self.key.sha256:
                raise BadMessage("the bytes of the update do not match their announced digest")
            return await self._post((self.key, 0, data))

    async def _answer_to_header(self) -> Reply | None:
        """The reply before any byte is read, or None when the bytes are wanted; checks the header."""
        runner = self.runner
        if not self._is_wanted():
            # The rules reply: a repeat of an accepted update must stay a duplicate.
            return await self._post(None)
        sums, consensus = runner.round_sum.sums, runner.round_sum.encoded()
        size = check_header(self._header.tensor, runner.terms.method.stage(consensus.consensus.stage).up, sums.dtype)
        if (refusal := sums.refusal(runner.run, consensus, self._header)) is not None:
            return refusal
        self._size = size
        # An open upload of this participant is cancelled: as it sends another, its connection must have broken.
        while under_way := self._resources.in_progress.get(self._slot):
            under_way.cancel()
            await asyncio.wait([under_way])
        return None

    async def _has_other(self) -> bool:
        """True if part of a different update of this participant was received."""
        if self.key.ref not in self._files.loaded:
            await self._store.do(lambda store: store.updates.load(self.key.ref))
        return self._files.has_other(self.key)

    def _is_wanted(self) -> bool:
        run = self.runner.run
        if out_of_turn(run, self._who, self.key.ref):
            return False
        return run.attempt is not None and self._who not in run.attempt.updates

    async def _alone(self, parts: AsyncIterator[UpdateChunk]) -> Chunk | None:
        uploads = self._resources.in_progress
        task = uploads[self._slot] = asyncio.ensure_future(self._collect(parts))
        task.add_done_callback(lambda _: uploads.pop(self._slot, None))
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            if (mine := asyncio.current_task()) and mine.cancelling():
                raise
            raise BadMessage("this upload was given up for a newer one of the same participant") from None

    async def _collect(self, parts: AsyncIterator[UpdateChunk]) -> Chunk | None:
        """Store all chunks but the last one, which goes into the transaction that accepts the update."""
        offset = self._files.received(self.key)
        sha, last = hashlib.sha256(), None
        if offset:
            sha = await self._store.do(lambda store: store.updates.digest_so_far(self.key))
        async for chunk in self._missing(parts, offset):
            offset += len(chunk.data)
            sha.update(chunk.data)
            last = (self.key, chunk.offset, chunk.data)
            if not self._is_wanted():
                return None
            if offset < self._size:
                await self._store.do(lambda store, chunk=last: store.updates.add(*chunk))  # type: ignore[misc]
        if sha.digest() != self._header.tensor.sha256:
            await self._store.do(lambda store: store.updates.forget(self.key))
            raise BadMessage("the bytes of the update do not match their announced digest")
        return last

    async def _missing(self, parts: AsyncIterator[UpdateChunk], kept: int) -> AsyncIterator[UpdateChunk]:
        """The chunks from byte `kept` on; a sender that does not know how much is kept may start at byte 0."""
        place: int | None = None
        if kept == self._size:
            return
        async for chunk in parts:
            if place is None:
                place = 0 if chunk.offset == 0 else kept
            self._check(chunk, place)
            place += len(chunk.data)
            if place > kept and chunk.offset < kept:
                raise BadMessage(f"a piece at byte {chunk.offset} overlaps the {kept} bytes that have arrived")
            if place > kept:
                yield chunk
            if place == self._size:
                return
        raise BadMessage(f"the upload ended after {place or kept} of {self._size} bytes")

    def _check(self, chunk: UpdateChunk, place: int, most: int = CHUNK_BYTES) -> None:
        size, dtype = len(chunk.data), self._header.tensor.dtype
        if chunk.offset != place or not 0 < size <= most or size % (4 if dtype == DTYPE_UINT32 else 8):
            raise BadMessage(f"a piece of {size} bytes at {chunk.offset} came where byte {place} was due")
        if place + size > self._size:
            raise BadMessage(f"more than the announced {self._size} bytes came")
        if dtype == DTYPE_FLOAT64 and not np.isfinite(np.frombuffer(chunk.data, "<f8")).all():
            raise BadMessage("the update holds NaN or infinite numbers")

    async def _post(self, last: Chunk | None) -> Reply:
        event = events.UpdateReceived(
            at=self._store.now(),
            participant=self._who,
            ref=self.key.ref,
            sha256=self.key.sha256,
            size=self._size,
            tag=self._header.tag,
        )
        return await self.runner.post(event, last) or ACCEPTED

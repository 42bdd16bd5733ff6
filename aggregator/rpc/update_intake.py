"""Receiving an update: its header is checked against the spec before a byte is stored, then chunk by chunk."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from aggregator.rpc.transfers import TransferSlots
from aggregator.rpc.wire_events import receipt
from aggregator.run import events
from aggregator.run.attempts import out_of_turn
from aggregator.run.effects import Reply
from aggregator.run.secure_sum import check_update
from aggregator.runner import Chunk, Runner
from aggregator.store.thread import StoreThread
from aggregator.store.update_files import UpdateKey
from dcfpca.errors import BadMessage
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import DTYPE_FLOAT64, DTYPE_UINT32, Receipt
from dcfpca.wire.constants import CHUNK_BYTES, MESSAGE_BYTES
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import ref_from_wire, update_dtype
from dcfpca.wire.tensors import Buffer, check_header, size_of

_REJECTED = receipt(Reply(Fate.REJECTED, "a different update has begun to arrive in this attempt before"))


class UpdateChunk(NamedTuple):
    """A chunk of an update, taken out of its message once: every access to a bytes field of protobuf copies it."""

    offset: int
    data: Buffer


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
        self._key = UpdateKey(ref_from_wire(header.ref), who, header.tensor.sha256)
        self._files = resources.store.store.updates
        self._size = 0

    async def take(self, parts: AsyncIterator[UpdateChunk], your_turn: Callable[[], Awaitable[None]]) -> Receipt:
        """Receive the chunks and return the receipt. `your_turn` tells the sender that it has a slot now.

        Raises BadMessage on what the spec does not allow.
        """
        if (answer := await self._answer_to_header()) is not None:
            return answer
        async with self._resources.slots.hold(self._who):
            await your_turn()
            if await self._has_other():
                return _REJECTED
            last = await self._alone(parts)
            return receipt(await self.runner.post(self._event(), last))

    async def take_whole(self, data: Buffer) -> Receipt:
        """The same for an update in one message."""
        if (answer := await self._answer_to_header()) is not None:
            return answer
        self._check(UpdateChunk(0, data), 0, MESSAGE_BYTES)
        if len(data) != self._size:
            raise BadMessage(f"the upload ended after {len(data)} of {self._size} bytes")
        async with self._resources.slots.hold(self._who):
            if await self._has_other():
                return _REJECTED
            if hashlib.sha256(data).digest() != self._header.tensor.sha256:
                raise BadMessage("the bytes of the update do not match their announced digest")
            return receipt(await self.runner.post(self._event(), (self._key, 0, data)))

    async def _answer_to_header(self) -> Receipt | None:
        """The receipt before any byte is read, or None when the bytes are wanted; checks the header."""
        if not self._is_wanted():
            # The rules reply: a repeat of an accepted update must stay a duplicate.
            return receipt(await self.runner.post(self._event()))
        layout = self.runner.terms.up(self.runner.consensus.stage)
        check_header(self._header.tensor, layout, update_dtype(self.runner.spec))
        if self.runner.run.secure is not None:
            told = self.runner.round_sum.encoded().told
            check_update(self.runner.terms, self.runner.run, told, self._header.context, self._header.tag)
        elif self._header.ticket not in (b"", self.runner.ticket()):
            # The context of a masked update says more than a ticket; a plain one has no context.
            return receipt(Reply(Fate.LATE, "this attempt was opened anew by a restored aggregator"))
        self._size = size_of(self._header.tensor)
        await self._take_over()
        return None

    async def _has_other(self) -> bool:
        """True if part of a different update of this participant was received."""
        if not self._files.is_loaded(self._key.ref):
            await self._store.do(lambda store: store.updates.load(self._key.ref))
        return self._files.has_other(self._key)

    def _is_wanted(self) -> bool:
        run = self.runner.run
        if out_of_turn(run, self._who, self._key.ref):
            return False
        return run.attempt is not None and self._who not in run.attempt.updates

    async def _take_over(self) -> None:
        """Cancel an open upload of this participant, whose connection must have broken as it sends another."""
        while under_way := self._resources.in_progress.get(self._slot):
            under_way.cancel()
            await asyncio.wait([under_way])

    @property
    def _slot(self) -> tuple[str, str]:
        return self.runner.run.run_id, self._who

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
        offset = self._files.received(self._key)
        sha, last = hashlib.sha256(), None
        if offset:
            sha = await self._store.do(lambda store: store.updates.digest_so_far(self._key))
        async for chunk in self._missing(parts, offset):
            offset += len(chunk.data)
            sha.update(chunk.data)
            last = (self._key, chunk.offset, chunk.data)
            if not self._is_wanted():
                return None
            if offset < self._size:
                await self._store.do(lambda store, chunk=last: store.updates.add(*chunk))  # type: ignore[misc]
        if sha.digest() != self._header.tensor.sha256:
            await self._store.do(lambda store: store.updates.forget(self._key))
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

    def _event(self) -> events.UpdateReceived:
        return events.UpdateReceived(
            at=self._store.now(),
            participant=self._who,
            ref=self._key.ref,
            sha256=self._key.sha256,
            size=self._size,
            tag=self._header.tag,
        )

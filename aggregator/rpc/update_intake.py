"""An update on its way in: announced, checked against the spec before a byte is kept, stored piece by piece."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from aggregator.rpc.transfer_slots import Places
from aggregator.rpc.wire_events import receipt
from aggregator.run import events
from aggregator.run.effects import Reply
from aggregator.run.round_messages import out_of_turn
from aggregator.run.state import Phase
from aggregator.runner import Piece, Runner
from aggregator.running_sum import update_dtype
from aggregator.store.update_files import UploadKey
from aggregator.store_thread import Keeper
from dcfpca.errors import BadMessage
from dcfpca.fate import Fate
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import DTYPE_FLOAT64, DTYPE_UINT32, Receipt
from dcfpca.wire import check_header, size_of
from dcfpca.wire_constants import CHUNK_BYTES

_REJECTED = receipt(Reply(Fate.REJECTED, "a different update has begun to arrive in this attempt before"))


class Slice(NamedTuple):
    """A piece of an update. Taken out of its message once: every look at a field of protobuf's copies the bytes."""

    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Means:
    """What every intake works with."""

    keeper: Keeper
    places: Places


class Intake:
    """Takes one update; what arrived before a broken connection is kept and need not be sent again."""

    def __init__(self, runner: Runner, means: Means, who: str, header: pb.UpdateHeader) -> None:
        ref = header.ref
        self.runner, self._who, self._header = runner, who, header
        self._keeper, self._places = means.keeper, means.places
        self._key = UploadKey(ref.run_id, ref.round, ref.attempt, who, header.tensor.sha256)
        self._spool = means.keeper.store.spool
        self._size = 0

    async def take(self, parts: AsyncIterator[Slice], your_turn: Callable[[], Awaitable[None]]) -> Receipt:
        """Everything up to the receipt. `your_turn` tells the sender that there is a place for its bytes now.

        Raises BadMessage on what the spec does not allow.
        """
        if (answer := await self._answer_to_header()) is not None:
            return answer
        async with self._places.hold(self._who):
            await your_turn()
            if await self._has_other():
                return _REJECTED
            last = await self._alone(parts)
            return receipt(await self.runner.post(self._event(), last))

    async def take_whole(self, data: bytes) -> Receipt:
        """The same where all bytes are there at once."""
        if (answer := await self._answer_to_header()) is not None:
            return answer
        self._check(Slice(0, data), 0)
        if len(data) != self._size:
            raise BadMessage(f"the upload ended after {len(data)} of {self._size} bytes")
        async with self._places.hold(self._who):
            if await self._has_other():
                return _REJECTED
            if hashlib.sha256(data).digest() != self._header.tensor.sha256:
                raise BadMessage("the bytes of the update do not match their announced digest")
            return receipt(await self.runner.post(self._event(), (self._key, 0, data)))

    async def _answer_to_header(self) -> Receipt | None:
        """What there is to say before a byte is looked at; None: the bytes are wanted. Checks what is announced."""
        if not self._is_wanted():
            # The rules answer, not we: a repeat of an accepted update must stay a duplicate.
            return receipt(await self.runner.post(self._event()))
        if not self._is_of_this_opening():
            return receipt(Reply(Fate.LATE, "this attempt was opened anew by a restored aggregator"))
        layout = self.runner.method.update_layout(self._key.round)
        check_header(self._header.tensor, layout, update_dtype(self.runner.spec))
        self._size = size_of(self._header.tensor)
        await self._take_over()
        return None

    async def _has_other(self) -> bool:
        """Whether another update of this participant has begun to arrive."""
        if not self._spool.is_known(self._key):
            await self._keeper.do(lambda store: store.spool.look(self._key))
        return self._spool.has_other(self._key)

    def _is_wanted(self) -> bool:
        run, key = self.runner.run, self._key
        if out_of_turn(run, self._who, key.round, key.attempt, Phase.UPLOADING):
            return False
        return run.round is not None and self._who not in run.round.updates

    def _is_of_this_opening(self) -> bool:
        ticket = self._header.ticket
        return not ticket or self.runner.run.round is None or ticket == self.runner.facts.now().ticket

    async def _take_over(self) -> None:
        """End an upload that this participant has under way: its connection broke, or it would not send another."""
        while under_way := self.runner.uploads.get(self._who):
            under_way.cancel()
            await asyncio.wait([under_way])

    async def _alone(self, parts: AsyncIterator[Slice]) -> Piece | None:
        uploads = self.runner.uploads
        task = uploads[self._who] = asyncio.ensure_future(self._collect(parts))
        task.add_done_callback(lambda _: uploads.pop(self._who, None))
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            if (mine := asyncio.current_task()) and mine.cancelling():
                raise
            raise BadMessage("this upload was given up for a newer one of the same participant") from None

    async def _collect(self, parts: AsyncIterator[Slice]) -> Piece | None:
        """Store all pieces but the last one, which goes into the transaction that accepts the update."""
        offset = self._spool.received(self._key)
        sha, last = hashlib.sha256(), None
        if offset:
            sha = await self._keeper.do(lambda store: store.spool.digest_so_far(self._key))
        async for chunk in self._missing(parts, offset):
            offset += len(chunk.data)
            sha.update(chunk.data)
            last = (self._key, chunk.offset, chunk.data)
            if not self._is_wanted():
                return None
            if offset < self._size:
                await self._keeper.do(lambda store, piece=last: store.spool.add(*piece))  # type: ignore[misc]
        if sha.digest() != self._header.tensor.sha256:
            await self._keeper.do(lambda store: store.spool.forget(self._key))
            raise BadMessage("the bytes of the update do not match their announced digest")
        return last

    async def _missing(self, parts: AsyncIterator[Slice], kept: int) -> AsyncIterator[Slice]:
        """The pieces from byte `kept` on; one who does not know how much is kept may begin at the beginning."""
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

    def _check(self, chunk: Slice, place: int) -> None:
        size, dtype = len(chunk.data), self._header.tensor.dtype
        if chunk.offset != place or not 0 < size <= CHUNK_BYTES or size % (4 if dtype == DTYPE_UINT32 else 8):
            raise BadMessage(f"a piece of {size} bytes at {chunk.offset} came where byte {place} was due")
        if place + size > self._size:
            raise BadMessage(f"more than the announced {self._size} bytes came")
        if dtype == DTYPE_FLOAT64 and not np.isfinite(np.frombuffer(chunk.data, "<f8")).all():
            raise BadMessage("the update holds NaN or infinite numbers")

    def _event(self) -> events.UpdateReceived:
        return events.UpdateReceived(
            at=self._keeper.now(),
            participant=self._who,
            round=self._key.round,
            attempt=self._key.attempt,
            sha256=self._key.sha256,
            size=self._size,
        )

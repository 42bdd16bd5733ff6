"""An update on its way in: announced, checked against the spec before a byte is kept, stored piece by piece."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import numpy as np

from aggregator.keeper import Keeper
from aggregator.rpc.translate import receipt
from aggregator.run import events
from aggregator.run.messages import out_of_turn
from aggregator.run.state import Phase
from aggregator.runner import Runner
from aggregator.store.store import UploadKey
from aggregator.sums import update_dtype
from dcfpca.errors import BadMessage
from dcfpca.names import CHUNK_BYTES
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import DTYPE_FLOAT64, Chunk, Receipt
from dcfpca.wire import check_header, size_of


class Intake:
    """Takes one update; what arrived before a broken connection is kept and need not be sent again."""

    def __init__(self, runner: Runner, keeper: Keeper, who: str, header: pb.UpdateHeader, pause: float) -> None:
        ref = header.ref
        self._runner, self._keeper, self._who, self._header, self._pause = runner, keeper, who, header, pause
        self._key = UploadKey(ref.run_id, ref.round, ref.attempt, who, header.tensor.sha256)
        self._size = 0

    async def take(self, parts: AsyncIterator[pb.UpdatePart]) -> Receipt:
        """Everything up to the receipt. Raises BadMessage on what the spec does not allow."""
        ref = self._header.ref
        refusal = out_of_turn(self._runner.run, self._who, ref.round, ref.attempt, Phase.UPLOADING)
        if refusal:
            # The rules answer, not we: a repeat of an accepted update must stay a duplicate.
            return receipt(await self._runner.post(self._event()))
        layout = self._runner.method.update_layout(ref.round)
        check_header(self._header.tensor, layout, update_dtype(self._runner.spec))
        self._size = size_of(self._header.tensor)
        last = await self._collect(parts)
        return receipt(await self._runner.post(self._event(), last))

    async def _collect(self, parts: AsyncIterator[pb.UpdatePart]) -> tuple[UploadKey, int, bytes] | None:
        """Store all pieces but the last one, which goes into the transaction that accepts the update."""
        offset = await self._keeper.do(lambda store: store.received(self._key))
        sha, last = hashlib.sha256(), None
        if offset:
            sha = await self._keeper.do(lambda store: store.digest_so_far(self._key))
        while offset < self._size:
            chunk = await self._next(parts, offset)
            offset += len(chunk.data)
            sha.update(chunk.data)
            last = (self._key, chunk.offset, chunk.data)
            if offset < self._size:
                await self._keeper.do(lambda store, piece=last: store.add_chunk(*piece))  # type: ignore[misc]
        if sha.digest() != self._header.tensor.sha256:
            await self._keeper.do(lambda store: store.forget_upload(self._key))
            raise BadMessage("the bytes of the update do not match their announced digest")
        return last

    async def _next(self, parts: AsyncIterator[pb.UpdatePart], offset: int) -> Chunk:
        try:
            async with asyncio.timeout(self._pause):
                part = await anext(parts)
        except StopAsyncIteration:
            raise BadMessage(f"the upload ended after {offset} of {self._size} bytes") from None
        except TimeoutError:
            raise BadMessage(f"nothing came for {self._pause:g} seconds in the middle of an upload") from None
        chunk = part.chunk
        if chunk.offset != offset or not 0 < len(chunk.data) <= CHUNK_BYTES or len(chunk.data) % 8 % 4:
            raise BadMessage(f"a piece of {len(chunk.data)} bytes at {chunk.offset} came where byte {offset} was due")
        if offset + len(chunk.data) > self._size:
            raise BadMessage(f"more than the announced {self._size} bytes came")
        if self._header.tensor.dtype == DTYPE_FLOAT64 and not np.isfinite(np.frombuffer(chunk.data, "<f8")).all():
            raise BadMessage("the update holds NaN or infinite numbers")
        return chunk

    def _event(self) -> events.UpdateReceived:
        ref = self._header.ref
        return events.UpdateReceived(
            at=self._keeper.now(),
            participant=self._who,
            round=ref.round,
            attempt=ref.attempt,
            sha256=self._header.tensor.sha256,
            size=self._size,
        )

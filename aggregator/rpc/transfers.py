"""Transfers: slots, so that memory does not grow with the peers, and a limit on how long one may say nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio

from aggregator.rpc.status_errors import TooSlow


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

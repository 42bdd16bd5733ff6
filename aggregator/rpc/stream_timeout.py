"""Reading a request stream with a timeout, so that a silent caller cannot hold its slot for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from grpc import aio

from aggregator.rpc.status_errors import TooSlow


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

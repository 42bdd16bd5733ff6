"""A stream that must keep moving: who opens one and says nothing may not hold its place for ever."""

from __future__ import annotations

import asyncio
from typing import Any

from grpc import aio

from aggregator.rpc.status_errors import TooSlow


class Punctual:
    """The messages of a call as they come; raises TooSlow when one is longer in coming than `pause` seconds.

    Read from the call itself and not by gRPC's iterator, which holds on to the last message it gave until the garbage
    is collected: with many participants, a round's updates twice over.
    """

    def __init__(self, context: aio.ServicerContext[Any, Any], pause: float) -> None:
        self._context, self._pause = context, pause

    def __aiter__(self) -> Punctual:
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

"""A stream that must keep moving: who opens one and says nothing may not hold its place for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from aggregator.rpc.faults import TooSlow

T = TypeVar("T")


async def punctual(parts: AsyncIterator[T], pause: float) -> AsyncIterator[T]:
    """The same messages; raises TooSlow when one is longer in coming than `pause` seconds."""
    while True:
        try:
            async with asyncio.timeout(pause):
                part = await anext(parts)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise TooSlow(f"nothing came for {pause:g} seconds in the middle of an upload") from None
        yield part

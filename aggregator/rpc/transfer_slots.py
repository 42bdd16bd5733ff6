"""Slots for transfers: data that waits for one stays with its sender, so memory does not grow with the peers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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

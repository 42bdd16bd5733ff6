"""Places for transfers: what waits for one stays with its sender, so memory does not follow the number of peers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Places:
    """So many transfers at a time, and of one identity one, so that nobody can hold them all."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._own: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, who: str) -> AsyncIterator[None]:
        """A place for one transfer, once there is one."""
        self._waiting[who] += 1
        try:
            async with self._own.setdefault(who, asyncio.Lock()), self._free:
                yield
        finally:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who], self._own[who]

"""A version counter that tasks wait on instead of polling; a waiter that missed a change returns at once."""

from __future__ import annotations

import asyncio


class Signal:
    """Counts changes; waiters wake when the count differs from the one they saw."""

    def __init__(self) -> None:
        self.version = 0
        self._changed = asyncio.Event()

    def fire(self) -> None:
        """Wake everybody."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self, seen: int) -> int:
        """Return at once if something changed since `seen`, else at the next change."""
        while self.version == seen:
            await self._changed.wait()
        return self.version

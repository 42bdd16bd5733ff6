"""How readers of runs and participants learn that something has changed, without being told what."""

from __future__ import annotations

import asyncio


class Signal:
    """Counts changes. Waiters wake when the count differs from the one they saw, so that none misses a change."""

    def __init__(self) -> None:
        self.version = 0
        self._changed: asyncio.Event | None = None  # only while somebody waits: most runs are over

    def fire(self) -> None:
        """Wake everybody."""
        self.version += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def wait(self, seen: int) -> int:
        """Return at once if something changed since `seen`, else at the next change."""
        while self.version == seen:
            if self._changed is None:
                self._changed = asyncio.Event()
            await self._changed.wait()
        return self.version

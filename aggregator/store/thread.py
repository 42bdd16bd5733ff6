"""The one thread that uses the store, with the clock and the audit log that go with it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from aggregator.store import audit
from aggregator.store.database import StoreFailed, explained
from aggregator.store.store import Store

SLEW = 0.05
"""How much faster or slower than real time the clock runs while it catches up with a wall clock that was set."""


class SteadyClock:
    """Unix seconds that advance with the monotonic clock.

    When the wall clock is set, forward or back, the difference is made up gradually: durations and deadlines are then
    wrong by SLEW at most, whatever the step.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._time, self._at = wall(), monotonic()

    def now(self) -> float:
        """The present time; never earlier than at the call before."""
        at = self._monotonic()
        passed = max(0.0, at - self._at)
        behind = self._wall() - (self._time + passed)
        self._time += passed + min(max(behind, -SLEW * passed), SLEW * passed)
        self._at = at
        return self._time


T = TypeVar("T")


class StoreThread:
    """Runs store operations one after another off the event loop, so that a slow disk does not stall the streams.

    `now` gives Unix seconds, because times are stored and must mean the same after a restart; they never go back.
    """

    def __init__(self, store: Store, signer: audit.Signer, actor: str) -> None:
        self.store = store
        self.signer = signer
        self.actor = actor
        self.now = SteadyClock().now
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")

    async def do(self, operation: Callable[[Store], T]) -> T:
        """The result of an operation on the store, once it is durable."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._in_thread, operation)

    def later(self, operation: Callable[[Store], None]) -> None:
        """Queue an operation without waiting for it; a failure is ignored, so nothing may depend on it."""
        self._thread.submit(self._in_thread, operation)

    def _in_thread(self, operation: Callable[[Store], T]) -> T:
        try:
            return operation(self.store)
        except StoreFailed:
            self.store.write_failed = True
            raise
        except sqlite3.DatabaseError as error:
            self.store.write_failed = True
            raise explained(error, self.store.path) from error

    async def record(self, action: str, *, actor: str = "", run_id: str = "", **detail: object) -> None:
        """Append an entry to the audit log; without `actor` it is the aggregator's own."""
        who, at_ms = actor or self.actor, int(self.now() * 1000)
        await self.do(
            lambda store: audit.append(
                store.connection, self.signer, at_ms=at_ms, actor=who, action=action, run_id=run_id, detail=detail
            )
        )

    def close(self) -> None:
        """Finish the queued operations, then close the store."""
        self._thread.shutdown(wait=True)
        self.store.close()

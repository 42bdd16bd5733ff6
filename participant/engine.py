"""Where the local step runs: a thread of its own, so that the daemon stays reachable, with stated BLAS threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from threadpoolctl import threadpool_limits

from dcfpca.rpca.exchange import Columns, Method, Site
from participant.idle import IdleSite

T = TypeVar("T")


class Engine:
    """Runs work off the event loop. Threads do not keep a stopping daemon alive: what they compute is redone."""

    def __init__(self, threads: int = 0, *, idle: bool = False) -> None:
        self._idle = idle
        self.threads = threads or os.cpu_count() or 1
        # The limit is the process's, not the thread's, so it is set once and stays.
        threadpool_limits(limits=self.threads)

    def site(self, method: Method, columns: Columns) -> Site:
        """The site's side of the method."""
        return IdleSite(method, columns) if self._idle else method.site(columns)

    async def run(self, work: Callable[[], T]) -> T:
        """The outcome of `work`, awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(outcome: T | None, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(outcome)  # type: ignore[arg-type]

        def body() -> None:
            outcome, error = None, None
            try:
                outcome = work()
            except Exception as raised:  # handed to whoever awaits
                error = raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome, error)

        threading.Thread(target=body, name="local-step", daemon=True).start()
        return await future

"""Where the local step runs: threads of its own, so that the daemon stays reachable, with stated BLAS threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from threadpoolctl import threadpool_limits

from dcfpca.rpca.exchange import Columns, Method, Site
from participant.idle import IdleSite

T = TypeVar("T")
Job = Callable[[], None]


class Engine:
    """Runs work off the event loop. Its threads do not keep a stopping daemon alive: what they compute is redone."""

    def __init__(self, threads: int = 0, *, idle: bool = False) -> None:
        self._idle = idle
        self.threads = threads or os.cpu_count() or 1
        # The limit is the process's, not the thread's, so it is set once and stays.
        threadpool_limits(limits=self.threads)
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._waiting_threads = 0

    def site(self, method: Method, columns: Columns) -> Site:
        """The site's side of the method."""
        return IdleSite(method, columns) if self._idle else method.site(columns)

    def close(self) -> None:
        """Let go of what the engine holds beside its threads, which is nothing."""

    async def run(self, work: Callable[[], T]) -> T:
        """The outcome of `work`, awaited."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(outcome: T | None, error: BaseException | None) -> None:
            self._waiting_threads += 1
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(outcome)  # type: ignore[arg-type]

        def job() -> None:
            outcome, error = None, None
            try:
                outcome = work()
            except Exception as raised:  # handed to whoever awaits
                error = raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome, error)

        self._hand_over(job)
        return await future

    def _hand_over(self, job: Job) -> None:
        """To an idle thread, or to a new one: runs wait for their own steps, not for each other's."""
        if self._waiting_threads:
            self._waiting_threads -= 1
        else:
            threading.Thread(target=self._work, name="local-step", daemon=True).start()
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            self._jobs.get()()

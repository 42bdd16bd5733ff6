"""Where the local step runs: threads of its own, so that the daemon stays reachable, with stated BLAS threads."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from dcfpca.rpca.columns import block_width
from dcfpca.rpca.method import Columns, Method, Site
from participant.data.matrix import ChosenColumns, WindowedColumns, window_width
from participant.idle_site import IdleSite
from participant.part_states import State
from participant.partitioned_site import CUT, PartedSite, Workshop
from participant.progress import MeteredColumns

T = TypeVar("T")
Job = Callable[[], None]
LEAST_PART_BYTES = 4 << 20  # smaller ones cost more to hand round than to work on
LARGEST_PART_BYTES = 32 << 20
PARTS = 16  # of a matrix in memory, where its size allows
ROOM_PER_PART = 4  # times its size: the part, its result, and as much again for those that wait


class Engine:
    """Runs work off the event loop. Its threads do not keep a stopping daemon alive: what they compute is redone."""

    def __init__(
        self, threads: int = 0, *, idle: bool = False, memory_limit: int = 0, scratch: Path | None = None
    ) -> None:
        self._idle = idle
        self.threads = threads or os.cpu_count() or 1
        # Threads work on parts; the algebra in a part has one, so that the numbers do not depend on their number.
        ThreadpoolController().limit(limits=1)
        self._memory_limit, self._scratch = memory_limit, scratch
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._waiting_threads = 0

    def site(self, method: Method, columns: Columns) -> Site:
        """The site's side of the method."""
        if self._idle:
            return IdleSite(method, columns)
        width = self._part_width(columns)
        if width >= columns.shape[1]:
            return method.site(columns)
        return PartedSite(method, columns, width, self._workshop(8 * columns.shape[0] * width, columns))

    def resume(self, site: Site, snapshot: State) -> None:
        """Let the site go on from a snapshot. One made under another [engine] is left: the site was away, so to say."""
        if (CUT in snapshot) == (not isinstance(site, PartedSite)):
            return
        site.restore(snapshot)

    def close(self) -> None:
        """Let go of what the engine holds."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _part_width(self, columns: Columns) -> int:
        """How many columns make a part: a window of what is read from disk, else so many that every thread has some."""
        rows, count = columns.shape
        if (window := _window(columns)) is not None:
            return window
        if self.threads == 1:
            return count
        wanted = min(max(8 * rows * count // PARTS, LEAST_PART_BYTES), LARGEST_PART_BYTES)
        return window_width(rows, block_width(rows), wanted)

    def _workshop(self, part_bytes: int, columns: Columns) -> Workshop:
        threads = self.threads
        if self._memory_limit:
            threads = min(threads, max(1, self._memory_limit // (ROOM_PER_PART * part_bytes) - 2))
        if _window(columns) is not None:
            threads += 1  # one waits for the disk
        pool = self._pools.setdefault(threads, ThreadPoolExecutor(threads, "parts"))
        return Workshop(pool, threads + 1, self._scratch)

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


def _window(columns: Columns) -> int | None:
    """The width of the windows through which these columns are read; None where they are in memory or mapped."""
    while isinstance(columns, MeteredColumns | ChosenColumns):
        columns = columns.columns
    return columns.width if isinstance(columns, WindowedColumns) else None

"""Runs local steps in threads of their own, so that the daemon's event loop stays responsive."""

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

from dcfpca.rpca.column_blocks import block_width
from dcfpca.rpca.method import Columns, Method, Site
from participant.data.matrix import WindowedColumns, window_width
from participant.data.selection import Selection
from participant.engine.noop_site import IdleSite
from participant.engine.part_states import State
from participant.engine.partitioned_site import CUT, PartitionedSite, PartWorkers
from participant.engine.progress import MeteredColumns

T = TypeVar("T")
Job = Callable[[], None]
LEAST_PART_BYTES = 4 << 20  # for smaller parts, handing them to threads costs more than computing them
LARGEST_PART_BYTES = 32 << 20
PARTS = 16  # of a matrix in memory, if its size allows
MEMORY_PER_PART = 4  # times its size: the part, its result, and as much again for finished parts not yet taken


class Engine:
    """Runs work in daemon threads: a stopping process does not wait for them, and the next start computes it again."""

    def __init__(
        self, threads: int = 0, *, idle: bool = False, memory_limit: int = 0, scratch: Path | None = None
    ) -> None:
        self._idle = idle
        self.threads = threads or os.cpu_count() or 1
        # Parallelism is over parts. BLAS gets one thread per part, so that results do not depend on the thread count.
        ThreadpoolController().limit(limits=1)
        self._memory_limit, self._scratch = memory_limit, scratch
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._waiting_threads = 0

    def site(self, method: Method, columns: Columns) -> Site:
        """The local half of the method, over the whole matrix or part by part."""
        if self._idle:
            return IdleSite(method, columns)
        width = self._part_width(columns)
        if width >= columns.shape[1]:
            return method.site(columns)
        return PartitionedSite(method, columns, width, self._part_workers(8 * columns.shape[0] * width, columns))

    def resume(self, site: Site, snapshot: State) -> None:
        """Restore the site from a snapshot; ignore one from another kind of engine and start from the data."""
        if (CUT in snapshot) == (not isinstance(site, PartitionedSite)):
            return
        site.restore(snapshot)

    def close(self) -> None:
        """Release the engine's thread pools."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _part_width(self, columns: Columns) -> int:
        """Columns per part: the window width if the matrix is read from disk, else enough parts for all threads."""
        rows, count = columns.shape
        if (window := _window(columns)) is not None:
            return window
        if self.threads == 1:
            return count
        wanted = min(max(8 * rows * count // PARTS, LEAST_PART_BYTES), LARGEST_PART_BYTES)
        return window_width(rows, block_width(rows), wanted)

    def _part_workers(self, part_bytes: int, columns: Columns) -> PartWorkers:
        threads = self.threads
        if self._memory_limit:
            threads = min(threads, max(1, self._memory_limit // (MEMORY_PER_PART * part_bytes) - 2))
        if _window(columns) is not None:
            threads += 1  # one waits for the disk
        pool = self._pools.setdefault(threads, ThreadPoolExecutor(threads, "parts"))
        return PartWorkers(pool, threads + 1, self._scratch)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result, or raise its error."""
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
            except Exception as raised:  # raised again in the coroutine that awaits
                error = raised
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome, error)

        self._hand_over(job)
        return await future

    def _hand_over(self, job: Job) -> None:
        """Give the job to an idle thread, or to a new one, so that no run waits for another run's step."""
        if self._waiting_threads:
            self._waiting_threads -= 1
        else:
            threading.Thread(target=self._work, name="local-step", daemon=True).start()
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            self._jobs.get()()


def _window(columns: Columns) -> int | None:
    """The width of the windows through which these columns are read; None if they are in memory or mapped."""
    while isinstance(columns, MeteredColumns | Selection):
        columns = columns.columns
    return columns.width if isinstance(columns, WindowedColumns) else None

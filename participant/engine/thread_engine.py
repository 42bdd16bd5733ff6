"""Runs local steps in threads of their own, so that the daemon's event loop stays responsive.

The loops of the extra `fast` are loaded or compiled before a round needs them; without numba there are none. Every
number of directions up to THIN_WIDTH has loops of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from dcfpca.logs import log
from dcfpca.rpca.column_blocks import block_width
from dcfpca.rpca.kernels.compiled_loops import (
    THIN_WIDTH,
    await_thin_loops,
    compiled_here,
    compiled_loops,
    load_loops,
    load_thin_loops,
)
from dcfpca.rpca.kernels.refinement_loops import load_refinement_loops
from dcfpca.rpca.method import Columns, Consensus, ResultBlock, TensorMessage
from dcfpca.rpca.refinement.hidden_entries import load_hidden_entry_loops
from dcfpca.rpca.round_limits import automatic_bound
from dcfpca.rpca.stage import Site
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.round_plan import RoundPlan
from dcfpca.rpca.subspace.solver import OPEN
from participant.data.matrix import Selection, WindowedColumns, reads_ahead
from participant.engine.partitioned_site import CUT, PartitionedSite, PartWorkers, State
from participant.engine.progress import MeteredColumns

T = TypeVar("T")
Job = Callable[[], None]
# What every part of a matrix in memory costs, whatever its columns, must be little beside what its columns cost: it
# keeps a state, and forms products of m × p by p × p.
LEAST_PART_BYTES = 16 << 20
COLUMNS_PER_DIRECTION = 5
LARGEST_PART_BYTES = 32 << 20
PARTS = 16
LARGEST_HELD_BYTES = 4 << 30  # of a matrix whose parts' states, some percent of it, are held in memory
CGROUP = Path("/sys/fs/cgroup")
MEMORY_PER_PART = 4  # times its size: the part, its result, and as much again for finished parts not yet taken


class Engine:
    """Runs work in daemon threads: a stopping process does not wait for them, and the next start computes it again."""

    def __init__(
        self, threads: int = 0, *, idle: bool = False, memory_limit: int = 0, scratch: Path | None = None
    ) -> None:
        self._idle = idle
        self.threads = threads or usable_cores()
        # Parallelism is over parts. BLAS gets one thread per part, so that results do not depend on the thread count.
        ThreadpoolController().limit(limits=1)
        self._memory_limit, self._scratch = memory_limit, scratch
        self._pools: dict[tuple[int, int], tuple[ThreadPoolExecutor, threading.Semaphore]] = {}
        self._jobs: SimpleQueue[Job] = SimpleQueue()
        self._waiting_threads = 0

    def site(self, method: Method, columns: Columns) -> Site:
        """The local half of the method, over the whole matrix or part by part."""
        if self._idle:
            return IdleSite(method, columns)
        width = self._part_width(columns, method.solver.width)
        if width >= columns.shape[1]:
            return method.site(columns)
        return PartitionedSite(method, columns, width, self._part_workers(8 * columns.shape[0] * width, columns))

    def resume(self, site: Site, snapshot: State, failed: Site | None = None) -> None:
        """Restore the site from a snapshot; ignore one from another kind of engine and start from the data. `failed` is
        the site that the last step failed at, if this one follows it in the same process."""
        if (CUT in snapshot) == (not isinstance(site, PartitionedSite)):
            return
        site.restore(snapshot)

    def close(self) -> None:
        """Release the engine's thread pools."""
        for pool, _ in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _part_width(self, columns: Columns, directions: int) -> int:
        """Columns per part: the window width if the matrix is read from disk, else such that parts are worth their
        cost. It does not depend on the number of threads, so that nor do results."""
        rows, count = columns.shape
        if (windowed := _windowed(columns)) is not None:
            return windowed.width
        if self.threads == 1:
            return count
        size, chunk = 8 * rows * count, block_width(rows)
        worthwhile = min(PARTS, size // LEAST_PART_BYTES, count // (COLUMNS_PER_DIRECTION * max(directions, 1)))
        parts = max(worthwhile, -(-size // LARGEST_PART_BYTES), 1)
        return -(-count // (parts * chunk)) * chunk

    def _part_workers(self, part_bytes: int, columns: Columns) -> PartWorkers:
        cores, windowed = self.threads, _windowed(columns)
        if self._memory_limit:
            cores = min(cores, max(1, self._memory_limit // (MEMORY_PER_PART * part_bytes) - 2))
        # One more waits for the disk where nothing else does. It competes with those that compute: with the matrix in
        # the page cache, two threads take a fifth longer beside a third.
        threads = cores if windowed is None or reads_ahead(windowed.source) else cores + 1
        if (cores, threads) not in self._pools:
            self._pools[cores, threads] = ThreadPoolExecutor(threads, "parts"), threading.Semaphore(cores)
        pool, computing = self._pools[cores, threads]
        held = windowed is None and 8 * columns.shape[0] * columns.shape[1] <= LARGEST_HELD_BYTES
        return PartWorkers(pool, computing, threads + 1, self._scratch, held)

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

        # An idle thread takes the job, or a new one: no run waits for another run's step, as it would in a pool.
        if self._waiting_threads:
            self._waiting_threads -= 1
        else:
            threading.Thread(target=self._work, name="local-step", daemon=True).start()
        self._jobs.put(job)
        return await future

    def _work(self) -> None:
        while True:
            self._jobs.get()()


def _windowed(columns: Columns) -> WindowedColumns | None:
    """The windows through which these columns are read; None if they are in memory or mapped."""
    while isinstance(columns, MeteredColumns | Selection):
        columns = columns.columns
    return columns if isinstance(columns, WindowedColumns) else None


def usable_cores(cgroup: Path = CGROUP) -> int:
    """The cores of the affinity mask, bounded by the CPU quota of the process's cgroup (v2), rounded up; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup / "cpu.max")
    return max(1, allowed if quota is None else min(allowed, quota))


def _quota(file: Path) -> int | None:
    """Whole cores of a `cpu.max` file, "QUOTA PERIOD" in microseconds; None without a limit."""
    try:
        quota, period = file.read_text().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no such controller, or the word "max"
        return None


class IdleSite:
    """Answers the rounds of `subspace` immediately, with zeros in the declared layout."""

    def __init__(self, method: Method, columns: Columns) -> None:
        self._method = method
        self._shape = columns.shape

    def answer(self, consensus: Consensus) -> TensorMessage:
        """Zeros, but for counts of columns that are large enough for any rank: no sum without them can be true."""
        update, columns = self._method.stage(consensus.stage).up.zeros(), float(self._shape[0])
        if consensus.stage == OPEN:
            update.scalars[0] = columns
        else:
            update.scalars[[0, 3]] = columns / RoundPlan.of(consensus.broadcast).columns
        return update

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """Nothing to keep."""
        return {}

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Nothing to restore."""

    def finish(self, consensus: Consensus) -> Iterator[ResultBlock]:
        """An empty result of the right shape."""
        width = consensus.broadcast.tensor.shape[1]
        yield ResultBlock(
            0, np.zeros(self._shape), scipy.sparse.csc_array(self._shape), np.zeros((self._shape[1], width))
        )

    def certificate(self) -> dict[str, float]:
        """No figures."""
        return {}


async def prepare_loops(engine: Engine, rows: int) -> None:
    """Load or compile the loops that every run needs, and those of the bound that a run without one has here."""
    if await engine.run(compiled_loops) is None:
        return
    began = time.monotonic()
    bound = automatic_bound(rows)
    await engine.run(partial(load_loops, [bound]))
    await engine.run(load_hidden_entry_loops)
    await engine.run(load_refinement_loops)
    log("loops_loaded", seconds=round(time.monotonic() - began, 2), compiled=compiled_here())


async def prepare_widths(engine: Engine, widest: int) -> None:
    """Load or compile the loops of this many directions, then of fewer, to which a run may narrow. Rounds do without
    those that are not there yet."""
    if await engine.run(compiled_loops) is None:
        return
    began, before = time.monotonic(), compiled_here()
    widths = range(min(widest, THIN_WIDTH), 0, -1)
    await_thin_loops(widths)
    for width in widths:
        await engine.run(partial(load_thin_loops, width))
    if compiled := compiled_here() - before:
        log("loops_compiled", seconds=round(time.monotonic() - began, 2), compiled=compiled)

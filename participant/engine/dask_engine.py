"""The local step on a Dask cluster: the site's columns are distributed over workers and stay there.

Each shard of columns is a small site of the method; `Method.partitioned_answer` combines their answers. Only m × r
sums, added on the workers, come back; the shards of M_i and V_i stay. When a worker dies, Dask computes its shards on
others. A step that fails is computed again from the V_i that the last saved step left on the workers. After a restart
of the daemon V_i is gone, and the shards compute theirs from the data, as a site does that missed a round.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import Unreachable
from dcfpca.freed_memory import keep_freed_memory
from dcfpca.logs import log
from dcfpca.rpca.column_blocks import block_width
from dcfpca.rpca.method import Columns, Consensus, FloatArray, ResultBlock, TensorMessage
from dcfpca.rpca.stage import PartTask, Site
from dcfpca.rpca.stage_list import Method
from participant.data.arrays import require_extra
from participant.data.data_config import DataTable
from participant.data.matrix import Indices, Selection, read_samples, take_rows
from participant.data.readers import read_matrix
from participant.engine.partitioned_site import CUT, State, combined, conclude, step
from participant.engine.progress import Cancellation, MeteredColumns, WorkCancelled
from participant.engine.thread_engine import Engine

SHARD_BYTES = 128 << 20
SHARDS_PER_WORKER = 2
STATES = "states"  # the snapshot entry that names the states on the workers
CONNECT_SECONDS = 15
CANCELLATION_SECONDS = 0.5  # how often a waiting step looks whether it was cancelled


@dataclass(frozen=True, slots=True)
class Shard:
    """Columns start … stop − 1 of the site's matrix, and where a worker reads them."""

    table: DataTable
    rows: Indices | None  # the selected features of the source; None: all
    samples: Indices | None  # the selected samples of the source; None: all
    start: int
    stop: int


class DaskEngine(Engine):
    """Like `Engine`, but sites compute on the cluster at `scheduler`, or in local processes if that is empty."""

    def __init__(self, scheduler: str, table: DataTable, threads: int = 0) -> None:
        super().__init__(threads)
        self._table = table
        self._cluster: Any = None
        distributed = require_extra("distributed", "dask")
        try:
            if not scheduler:
                self._cluster = distributed.LocalCluster(
                    n_workers=self.threads, threads_per_worker=1, dashboard_address=None
                )
            self.client: Any = distributed.Client(self._cluster or scheduler, timeout=CONNECT_SECONDS)
        except (OSError, ValueError):
            hint = "start it with `dask scheduler`, or correct [engine] scheduler"
            raise Unreachable(f"the Dask scheduler {scheduler} does not answer", hint) from None

    def site(self, method: Method, columns: Columns) -> Site:
        """The local half of the method, distributed over the workers."""
        there = columns.columns if isinstance(columns, MeteredColumns) else columns
        rows, samples = (there.rows, there.samples) if isinstance(there, Selection) else (None, None)
        workers = max(1, len(self.client.scheduler_info()["workers"]))
        shards = [Shard(self._table, rows, samples, start, stop) for start, stop in cut(columns.shape, workers)]
        return DaskSite(self.client, method, columns, shards)

    def resume(self, site: Site, snapshot: State, failed: Site | None = None) -> None:
        """Go on from the states that the snapshot names, if the failed site still has them on the workers; else V_i is
        computed from the data, and a warning is logged."""
        if isinstance(site, DaskSite) and not (isinstance(failed, DaskSite) and site.take_over(failed, snapshot)):
            log("state_left_behind", level="warning", reason="the coefficients were on the workers of the Dask cluster")

    def close(self) -> None:
        """Disconnect from the cluster, and stop it if it is local."""
        super().close()
        self.client.close()
        if self._cluster is not None:
            self._cluster.close()


def cut(shape: tuple[int, int], workers: int) -> list[tuple[int, int]]:
    """Ranges of whole column blocks: at least two for each worker if there are enough, none above SHARD_BYTES."""
    rows, columns = shape
    block = block_width(rows)
    blocks = -(-columns // (SHARDS_PER_WORKER * workers * block))
    width = block * max(1, min(SHARD_BYTES // (8 * max(rows, 1) * block), blocks))
    return [(start, min(start + width, columns)) for start in range(0, columns, width)]


class DaskSite:
    """Submits each step to all shards and adds their answers."""

    def __init__(self, client: Any, method: Method, columns: Columns, shards: Sequence[Shard]) -> None:
        self._client, self.columns = client, columns
        self._method = method
        self._shards = tuple(shards)
        self._blocks = [client.submit(load, shard, pure=False) for shard in shards]
        self._states: list[Any] = [{} for _ in shards]
        self._kept: dict[bytes, list[Any]] = {}  # the states of the last two snapshots, one of which is saved
        self._certificate: dict[str, float] = {}
        self._cancellation = columns.cancellation if isinstance(columns, MeteredColumns) else Cancellation()

    def answer(self, consensus: Consensus) -> TensorMessage:
        """The combined answer of the shards."""
        return self._method.partitioned_answer(self, consensus)

    def total(self, task: PartTask) -> FloatArray:
        """The sum over the shards, added up on the workers.

        A cancelled step leaves no shard to be begun; those that workers have begun run to their end.
        """
        # Submitted, not scattered: scattered data is lost with the worker that holds it.
        sent = self._client.submit(_same, task, pure=False)
        steps = [
            self._client.submit(step, block, self._method, state, sent, pure=False)
            for block, state in zip(self._blocks, self._states, strict=True)
        ]
        for shard, one in zip(self._shards, steps, strict=True):
            one.add_done_callback(partial(self._done, shard.stop - shard.start))
        vectors = [self._client.submit(itemgetter(0), one, pure=False) for one in steps]
        states = [self._client.submit(itemgetter(1), one, pure=False) for one in steps]
        total: FloatArray = self._result(self._client.submit(add, vectors, pure=False), steps)
        self._states = states
        return total

    def _result(self, future: Any, steps: Sequence[Any]) -> Any:
        """The result of `future`; when the work is cancelled first, the `steps` it needs are cancelled too."""
        # Not `future.result(timeout=…)`: where the timeout falls into the fetching, it cancels a request that the next
        # call may already share, which then fails.
        fetching = self._client.gather(future, asynchronous=True)
        fetched = asyncio.run_coroutine_threadsafe(fetching, self._client.loop.asyncio_loop)
        while not fetched.done():
            try:
                self._cancellation.check()
            except WorkCancelled:
                self._client.cancel(list(steps))
                raise
            wait([fetched], CANCELLATION_SECONDS)
        return fetched.result()

    def _done(self, columns: int, step: Any) -> None:
        """Count the columns of a finished shard for the progress report."""
        meter = self.columns.meter if isinstance(self.columns, MeteredColumns) else None
        if meter is not None and step.status == "finished":
            meter.advance(columns)

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """The division of the columns into shards, and a name for the states, which stay on the workers."""
        last = list(self._kept.items())[-1:]
        if not last or last[0][1] is not self._states:
            self._kept = dict([*last, (uuid.uuid4().bytes, self._states)])
        name = np.frombuffer(list(self._kept)[-1], np.uint8)
        return {CUT: np.array([shard.stop for shard in self._shards]), STATES: name}

    def take_over(self, failed: DaskSite, snapshot: State) -> bool:
        """Go on from the states of this snapshot of a site whose step failed; False if the workers lost them."""
        name = snapshot.get(STATES, np.zeros(0, np.uint8)).tobytes()
        states = failed._kept.get(name)
        if states is None or not all(_is_alive(state) for state in states):
            return False
        self._shards, self._states, self._kept = failed._shards, states, {name: states}
        self._blocks = [
            block if _is_alive(block) else self._client.submit(load, shard, pure=False)
            for block, shard in zip(failed._blocks, failed._shards, strict=True)
        ]
        return True

    def restore(self, snapshot: State) -> None:
        """Start from the data: the snapshot has no V_i."""
        self._states = [{} for _ in self._shards]

    def finish(self, consensus: Consensus) -> Iterator[ResultBlock]:
        """The shards' results, one after the other."""
        figures: list[tuple[int, dict[str, float]]] = []
        for shard, block, state in zip(self._shards, self._blocks, self._states, strict=True):
            done = self._client.submit(conclude, block, self._method, state, consensus, pure=False)
            parts, certificate = self._result(done, [done])
            figures.append((shard.stop - shard.start, certificate))
            yield from (replace(part, start=part.start + shard.start) for part in parts)
        self._certificate = combined(figures)

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish`, over all shards."""
        return dict(self._certificate)


def _is_alive(future: Any) -> bool:
    """Whether a future has a result or will have one; a state that was never computed is a plain dictionary."""
    return isinstance(future, dict) or future.status in ("pending", "finished")


def load(shard: Shard) -> FloatArray:
    """On a worker: read the shard's columns from the data source."""
    keep_freed_memory()  # Dask has its workers return every freed array, and get the pages of the next one by one
    block = read_samples(read_matrix(shard.table).columns, shard.samples, shard.start, shard.stop)
    return np.array(take_rows(block, shard.rows), order="F")


def add(vectors: Sequence[FloatArray]) -> FloatArray:
    """On a worker: the sum, in the order of the shards."""
    return reduce(np.add, vectors)


def _same(task: PartTask) -> PartTask:
    return task

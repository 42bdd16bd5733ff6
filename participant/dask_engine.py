"""The local step on a Dask cluster: the site's columns are dealt out to workers and stay there.

A shard of columns on a worker is a site of the method in small; `Method.partitioned_answer` joins their answers.
What comes back are m × r sums, added up on the workers; the shards of M_i and V_i stay there. A worker that dies takes
nothing with it: Dask knows how its shards came to be and has others do it again. A daemon that restarts has no V_i, and
its shards find theirs from the data, as a site does that was away for a round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import Unreachable
from dcfpca.rpca.columns import block_width
from dcfpca.rpca.method import Columns, FloatArray, Method, PartTask, ResultBlock, Site, TensorMessage
from participant.data import DataTable, open_matrix
from participant.data.arrays import extra
from participant.data.matrix import ChosenColumns
from participant.engine import Engine
from participant.part_states import State
from participant.partitioned_site import CUT, combined, conclude, step
from participant.progress import MeteredColumns

SHARD_BYTES = 128 << 20
SHARDS_PER_WORKER = 2
CONNECT_SECONDS = 15


@dataclass(frozen=True, slots=True)
class Shard:
    """Columns start … stop − 1 of the site's matrix, and how a worker comes by them."""

    table: DataTable
    rows: tuple[int, ...] | None  # the features that the spec chose; None: all
    start: int
    stop: int


class DaskEngine(Engine):
    """Like `Engine`, but sites work on the cluster at `scheduler`; empty: on processes of this machine."""

    def __init__(self, scheduler: str, table: DataTable, threads: int = 0) -> None:
        super().__init__(threads)
        self._table = table
        self._cluster: Any = None
        distributed = extra("distributed", "dask")
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
        """The site's side of the method, spread over the workers."""
        there = columns.columns if isinstance(columns, MeteredColumns) else columns
        rows = tuple(there.rows.tolist()) if isinstance(there, ChosenColumns) else None
        workers = max(1, len(self.client.scheduler_info()["workers"]))
        shards = [Shard(self._table, rows, start, stop) for start, stop in cut(columns.shape, workers)]
        return DaskSite(self.client, method, columns, shards)

    def resume(self, site: Site, snapshot: State) -> None:
        """Whatever the snapshot holds, the workers begin with the data."""

    def close(self) -> None:
        """Let go of the cluster."""
        super().close()
        self.client.close()
        if self._cluster is not None:
            self._cluster.close()


def cut(shape: tuple[int, int], workers: int) -> list[tuple[int, int]]:
    """Ranges of columns, whole blocks each: some for every worker, none larger than a shard may be."""
    rows, columns = shape
    block = block_width(rows)
    blocks = -(-columns // (SHARDS_PER_WORKER * workers * block))
    width = block * max(1, min(SHARD_BYTES // (8 * max(rows, 1) * block), blocks))
    return [(start, min(start + width, columns)) for start in range(0, columns, width)]


class DaskSite:
    """Deals out each step to the shards and adds up what they answer."""

    def __init__(self, client: Any, method: Method, columns: Columns, shards: Sequence[Shard]) -> None:
        self._client, self.columns = client, columns
        self._method = method
        self._shards = tuple(shards)
        self._blocks = [client.submit(load, shard, pure=False) for shard in shards]
        self._states: list[Any] = [{} for _ in shards]
        self._certificate: dict[str, float] = {}

    def answer(self, round: int, broadcast: TensorMessage) -> TensorMessage:
        """The shards' answers as the site's own."""
        return self._method.partitioned_answer(self, round, broadcast)

    def total(self, task: PartTask) -> FloatArray:
        """The sum over the shards, added up on the workers."""
        # Submitted, not scattered: what was scattered dies with the worker that holds it.
        told = self._client.submit(_same, task, pure=False)
        steps = [
            self._client.submit(step, block, self._method, state, told, pure=False)
            for block, state in zip(self._blocks, self._states, strict=True)
        ]
        for shard, one in zip(self._shards, steps, strict=True):
            one.add_done_callback(partial(self._done, shard.stop - shard.start))
        vectors = [self._client.submit(_vector_of, one, pure=False) for one in steps]
        states = [self._client.submit(_state_of, one, pure=False) for one in steps]
        total: FloatArray = self._client.submit(add, vectors, pure=False).result()
        self._states = states
        return total

    def _done(self, columns: int, step: Any) -> None:
        """For the percentage that is told of long steps."""
        if isinstance(self.columns, MeteredColumns) and step.status == "finished":
            self.columns.meter.advance(columns)

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """How the columns are cut; what there is to know of them is on the workers."""
        return {CUT: np.array([shard.stop for shard in self._shards])}

    def restore(self, snapshot: State) -> None:
        """Nothing to take up: V_i did not come back from the workers, and is found from the data."""
        self._states = [{} for _ in self._shards]

    def finish(self, broadcast: TensorMessage) -> Iterator[ResultBlock]:
        """The shards' results, one after the other."""
        figures: list[tuple[int, dict[str, float]]] = []
        for shard, block, state in zip(self._shards, self._blocks, self._states, strict=True):
            done = self._client.submit(conclude, block, self._method, state, broadcast, pure=False)
            parts, certificate = done.result()
            figures.append((shard.stop - shard.start, certificate))
            yield from (replace(part, start=part.start + shard.start) for part in parts)
        self._certificate = combined(figures)

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish`, over all shards."""
        return dict(self._certificate)


def load(shard: Shard) -> FloatArray:
    """On a worker: read the shard's columns from where the data lies."""
    block = open_matrix(shard.table).columns.read(shard.start, shard.stop)
    return np.array(block if shard.rows is None else block[list(shard.rows)], order="F")


def add(vectors: Sequence[FloatArray]) -> FloatArray:
    """On a worker: the sum, in the order of the shards."""
    return reduce(np.add, vectors)


def _same(task: PartTask) -> PartTask:
    return task


def _vector_of(step: tuple[FloatArray, Any]) -> FloatArray:
    return step[0]


def _state_of(step: tuple[Any, State]) -> State:
    return step[1]

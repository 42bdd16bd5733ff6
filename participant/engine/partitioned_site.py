"""A site whose columns are processed part by part, several parts at a time, each released before the next is read.

Each part is a small site of the method; `Method.partitioned_answer` combines their answers. Where the matrix is read
from disk, a part is a site only while it is worked on, and between rounds its state is on disk: memory does not grow
with the number of columns, and reading one part overlaps with computing others. Where the matrix is in memory, so are
the sites of its parts.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from threading import Semaphore
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dcfpca.atomic_files import make_directories
from dcfpca.freed_memory import return_freed_memory
from dcfpca.logs import log
from dcfpca.rpca.column_blocks import ArrayColumns, ColumnRange
from dcfpca.rpca.method import Columns, Consensus, FloatArray, ResultBlock, TensorMessage
from dcfpca.rpca.stage import PartTask
from dcfpca.rpca.stage_list import Method, StagedSite
from participant.engine.progress import Cancellation, MeteredColumns
from participant.state.step_files import release_pages

State = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class _Slot:
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


class PartStates:
    """The states of a site's parts, in the order they were added, in an unnamed temporary file: V_i has a row a column.

    An array that is equal in every part, such as U, is stored once.
    """

    def __init__(self, directory: Path | None) -> None:
        if directory is not None:
            make_directories(directory)
        self._file = TemporaryFile(dir=directory)  # noqa: SIM115  it lives as long as this object
        weakref.finalize(self, self._file.close)
        self._size = 0
        self._slots: list[dict[str, _Slot]] = []
        self._first: dict[str, NDArray[np.generic]] = {}

    def put(self, state: State) -> None:
        """Add the state of the next part."""
        if not self._slots:
            self._first = {name: np.array(array) for name, array in state.items()}
        self._slots.append({name: self._slot(name, array) for name, array in state.items()})

    def get(self, place: int) -> dict[str, NDArray[np.generic]]:
        """The state of a part; empty if none was added for it."""
        if place >= len(self._slots):
            return {}
        self._file.flush()
        shared = self._slots[0]
        return {
            name: self._first[name] if slot is shared.get(name) else self._read(slot)
            for name, slot in self._slots[place].items()
        }

    def mapped(self) -> dict[str, NDArray[np.generic]]:
        """All arrays as "part.name", memory-mapped; an array that a part shares with the first one is left out."""
        self._file.flush()
        if self._size == 0:
            return {}
        buffer = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ)
        shared = set(self._slots[0].values())
        return {
            f"{place}.{name}": np.ndarray(slot.shape, slot.dtype, buffer, slot.offset)
            for place, slots in enumerate(self._slots)
            for name, slot in slots.items()
            if place == 0 or slot not in shared
        }

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _slot(self, name: str, array: NDArray[np.generic]) -> _Slot:
        if self._slots and name in self._first and np.array_equal(self._first[name], array):
            return self._slots[0][name]
        return self._append(array)

    def _append(self, array: NDArray[np.generic]) -> _Slot:
        content = np.ascontiguousarray(array)
        slot = _Slot(self._size, content.dtype, array.shape)
        self._file.write(content.reshape(-1).view(np.uint8).data)
        self._size += slot.size
        return slot

    def _read(self, slot: _Slot) -> NDArray[np.generic]:
        content = os.pread(self._file.fileno(), slot.size, slot.offset)
        return np.frombuffer(content, slot.dtype).reshape(slot.shape)


def shared_once(states: Sequence[State]) -> dict[str, NDArray[np.generic]]:
    """All arrays as "part.name"; an array that equals the first part's is left out."""
    first = states[0]
    return {
        f"{place}.{name}": array
        for place, state in enumerate(states)
        for name, array in state.items()
        if place == 0 or not (name in first and np.array_equal(first[name], array))
    }


def unshared(snapshot: State, parts: int) -> list[dict[str, NDArray[np.generic]]]:
    """Inverse of `mapped` and `shared_once`: the states, one for each part."""
    states: list[dict[str, NDArray[np.generic]]] = [{} for _ in range(parts)]
    for key, array in snapshot.items():
        place, dot, name = key.partition(".")
        if dot:
            states[int(place)][name] = array
    return [{**states[0], **state} for state in states]


T = TypeVar("T")
CUT = "cut"  # the snapshot entry that describes how the columns were divided into parts


@dataclass(frozen=True, slots=True)
class PartWorkers:
    """The threads that process parts, how many of them compute at a time while others wait for the disk, how many parts
    may be started but not yet taken, and where states are kept; `hold`: their sites are held in memory instead."""

    pool: ThreadPoolExecutor
    cores: Semaphore
    ahead: int
    scratch: Path | None
    hold: bool = False


class PartitionedSite:
    """The local half of a method, combined from the parts of the site."""

    def __init__(self, method: Method, columns: Columns, width: int, workers: PartWorkers) -> None:
        self._method, self._workers = method, workers
        self.columns = columns
        self._cancellation = columns.cancellation if isinstance(columns, MeteredColumns) else Cancellation()
        count = columns.shape[1]
        self._cut = np.array([count, width])
        self.parts = [(start, min(start + width, count)) for start in range(0, count, width)]
        self._held = [method.site(ColumnRange(columns, *part)) for part in self.parts] if workers.hold else []
        self._states = PartStates(workers.scratch)
        self._certificate: dict[str, float] = {}

    def answer(self, consensus: Consensus) -> TensorMessage:
        """The combined answer of the parts."""
        return self._method.partitioned_answer(self, consensus)

    def total(self, task: PartTask) -> FloatArray:
        """The sum over the parts, added in their order, so that it does not depend on the number of threads."""
        if self._held:
            return added(self._over_parts(lambda place: task(self._held[place])))
        after = PartStates(self._workers.scratch)
        total = added(self._kept(after, self._over_parts(partial(self._step, task))))
        self._states.close()
        self._states = after
        return_freed_memory()  # of each thread's heap, which later work of other threads cannot use
        return total

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """The parts' states, mapped from disk where they are there, and how the columns were divided."""
        held = [site.snapshot() for site in self._held]
        return {CUT: self._cut, **(shared_once(held) if held else self._states.mapped())}

    def restore(self, snapshot: State) -> None:
        """Restore a snapshot; with another division, log a warning and start from the data."""
        if not np.array_equal(snapshot.get(CUT, np.zeros(0)), self._cut):
            log("state_left_behind", level="warning", reason="the data was divided into other parts before the restart")
            return
        self._states = PartStates(self._workers.scratch)
        for place, state in enumerate(unshared(snapshot, len(self.parts))):
            if self._held and state:
                self._held[place].restore(state)
            elif not self._held:
                self._states.put(state)
            for array in state.values():
                release_pages(array)

    def finish(self, consensus: Consensus) -> Iterator[ResultBlock]:
        """The parts' results, in order."""
        figures: list[tuple[int, dict[str, float]]] = []
        for place, (blocks, certificate) in enumerate(self._over_parts(partial(self._conclude, consensus))):
            start, stop = self.parts[place]
            figures.append((stop - start, certificate))
            yield from (replace(block, start=block.start + start) for block in blocks)
        self._certificate = combined(figures)
        if not self._held:
            return_freed_memory()

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish`, over all parts."""
        return dict(self._certificate)

    @staticmethod
    def _kept(states: PartStates, stepped: Iterator[tuple[FloatArray, State]]) -> Iterator[FloatArray]:
        """The vectors of the parts, whose states are put away as they come."""
        for vector, state in stepped:
            states.put(state)
            yield vector

    def _over_parts(self, work: Callable[[int], T]) -> Iterator[T]:
        return in_order(self._workers, work, len(self.parts))

    def _step(self, task: PartTask, place: int) -> tuple[FloatArray, State]:
        block, state = self._read(place)
        with self._workers.cores:
            return step(block, self._method, state, task, self._cancellation)

    def _conclude(self, consensus: Consensus, place: int) -> tuple[list[ResultBlock], dict[str, float]]:
        if self._held:
            return list(self._held[place].finish(consensus)), self._held[place].certificate()
        block, state = self._read(place)
        with self._workers.cores:
            return conclude(block, self._method, state, consensus, self._cancellation)

    def _read(self, place: int) -> tuple[FloatArray, State]:
        return self.columns.read(*self.parts[place]), self._states.get(place)


def added(vectors: Iterator[FloatArray]) -> FloatArray:
    """The sum of one vector or more, in their order; the first is overwritten."""
    total = next(vectors)
    for vector in vectors:
        np.add(total, vector, out=total)
    return total


def in_order(workers: PartWorkers, work: Callable[[int], T], count: int) -> Iterator[T]:
    """Results of `work` for 0 … count − 1, in order; threads compute at most `ahead` of them in advance."""
    begun: deque[Future[T]] = deque()
    try:
        for place in range(count):
            begun.append(workers.pool.submit(work, place))
            if len(begun) > workers.ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()
        wait(begun)


def step(
    block: FloatArray, method: Method, state: State, task: PartTask, cancellation: Cancellation | None = None
) -> tuple[FloatArray, dict[str, NDArray[np.generic]]]:
    """Process one part; any thread or worker can run and repeat it. Raises WorkCancelled once it is cancelled."""
    site = _site(block, method, state, cancellation)
    vector = task(site)
    after = site.snapshot()
    # A state of zeros equals that of a new site; with many parts it is worth not storing it.
    return vector, after if any(np.any(array) for array in after.values()) else {}


def conclude(
    block: FloatArray, method: Method, state: State, consensus: Consensus, cancellation: Cancellation | None = None
) -> tuple[list[ResultBlock], dict[str, float]]:
    """The result blocks and the certificate of a part."""
    site = _site(block, method, state, cancellation)
    return list(site.finish(consensus)), site.certificate()


def combined(figures: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """One certificate for all parts: figures averaged by columns (squares for `_rms`), the largest stationarity."""
    columns = sum(count for count, _ in figures)
    found: dict[str, float] = {}
    for name in figures[0][1]:
        values = [(count / columns, certificate[name]) for count, certificate in figures]
        if name == "stationarity":
            found[name] = max(value for _, value in values)
        elif name.endswith("_rms"):
            found[name] = float(np.sqrt(sum(weight * value**2 for weight, value in values)))
        else:
            found[name] = sum(weight * value for weight, value in values)
    return found


def _site(block: FloatArray, method: Method, state: State, cancellation: Cancellation | None) -> StagedSite:
    columns = ArrayColumns(block)
    site = method.site(MeteredColumns(columns, None, cancellation) if cancellation else columns)
    if state:
        site.restore(state)
    return site

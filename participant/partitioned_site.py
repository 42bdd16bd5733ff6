"""A site worked part by part: several parts at once, each read, stepped and let go before the next.

A part is a site of the method in small, and `Method.partitioned_answer` puts their answers together. While a part
waits for its next round its state lies on disk. So memory does not grow with the number of columns, and while one part
is read from disk others are worked on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dcfpca.logs import log
from dcfpca.rpca.columns import ArrayColumns
from dcfpca.rpca.method import Columns, FloatArray, Method, PartTask, ResultBlock, Site, TensorMessage
from participant.array_file import give_back
from participant.part_states import Shelf, State, unshared

T = TypeVar("T")
CUT = "cut"  # the place in a snapshot that tells how the columns were cut


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where parts are worked on: threads, how many parts may be begun and not yet taken, and where states wait."""

    pool: ThreadPoolExecutor
    ahead: int
    scratch: Path | None


class PartedSite:
    """The site's side of a method, put together from its parts."""

    def __init__(self, method: Method, columns: Columns, width: int, workshop: Workshop) -> None:
        self._method, self._workshop = method, workshop
        self.columns = columns
        count = columns.shape[1]
        self._cut = np.array([count, width])
        self._parts = [(start, min(start + width, count)) for start in range(0, count, width)]
        self._shelf = Shelf(workshop.scratch)
        self._certificate: dict[str, float] = {}

    def answer(self, round: int, broadcast: TensorMessage) -> TensorMessage:
        """The parts' answers as the site's own."""
        return self._method.partitioned_answer(self, round, broadcast)

    def total(self, task: PartTask) -> FloatArray:
        """The sum over the parts, added in their order, so that it does not depend on the threads."""
        after, total = Shelf(self._workshop.scratch), None
        for vector, state in self._over_parts(partial(self._step, task)):
            total = vector if total is None else total + vector
            after.put(state)
        assert total is not None
        self._shelf.close()
        self._shelf = after
        return total

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """The parts' states, mapped from disk, and how the columns were cut."""
        return {CUT: self._cut, **self._shelf.mapped()}

    def restore(self, snapshot: State) -> None:
        """Take up an earlier snapshot. One that was cut otherwise is as good as none: the site was away, so to say."""
        if not np.array_equal(snapshot.get(CUT, np.zeros(0)), self._cut):
            log("state_left_behind", level="warning", reason="the data was cut into other parts before the restart")
            return
        self._shelf = Shelf(self._workshop.scratch)
        for state in unshared(snapshot, len(self._parts)):
            self._shelf.put(state)
            for array in state.values():
                give_back(array)

    def finish(self, broadcast: TensorMessage) -> Iterator[ResultBlock]:
        """The parts' results, in order."""
        figures: list[tuple[int, dict[str, float]]] = []
        for place, (blocks, certificate) in enumerate(self._over_parts(partial(self._conclude, broadcast))):
            start, stop = self._parts[place]
            figures.append((stop - start, certificate))
            yield from (replace(block, start=block.start + start) for block in blocks)
        self._certificate = combined(figures)

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish`, over all parts."""
        return dict(self._certificate)

    def _over_parts(self, work: Callable[[int], T]) -> Iterator[T]:
        return in_order(self._workshop, work, len(self._parts))

    def _step(self, task: PartTask, place: int) -> tuple[FloatArray, State]:
        return step(self._read(place), self._method, self._shelf.get(place), task)

    def _conclude(self, broadcast: TensorMessage, place: int) -> tuple[list[ResultBlock], dict[str, float]]:
        return conclude(self._read(place), self._method, self._shelf.get(place), broadcast)

    def _read(self, place: int) -> FloatArray:
        return self.columns.read(*self._parts[place])


def in_order(workshop: Workshop, work: Callable[[int], T], count: int) -> Iterator[T]:
    """What `work` makes of 0 … count − 1, done by several threads and handed out in order; never far ahead."""
    begun: deque[Future[T]] = deque()
    try:
        for place in range(count):
            begun.append(workshop.pool.submit(work, place))
            if len(begun) > workshop.ahead:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        for future in begun:
            future.cancel()
        wait(begun)


def step(
    block: FloatArray, method: Method, state: State, task: PartTask
) -> tuple[FloatArray, dict[str, NDArray[np.generic]]]:
    """One piece of work on a part; a function of its arguments alone, so that it can be run anywhere, and again."""
    site = _site(block, method, state)
    vector = task(site)
    after = site.snapshot()
    # A state of zeros is that of a new site, and there are many parts: it need not be kept.
    return vector, after if any(np.any(array) for array in after.values()) else {}


def conclude(
    block: FloatArray, method: Method, state: State, broadcast: TensorMessage
) -> tuple[list[ResultBlock], dict[str, float]]:
    """The result of a part."""
    site = _site(block, method, state)
    return list(site.finish(broadcast)), site.certificate()


def combined(figures: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """Certificates of parts as one: shares and mean squares weighted by columns, the worst residual of optimality."""
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


def _site(block: FloatArray, method: Method, state: State) -> Site:
    site = method.site(ArrayColumns(block))
    if state:
        site.restore(state)
    return site

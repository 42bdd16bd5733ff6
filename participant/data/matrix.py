"""The site's matrix, whatever it was read from: `Columns` put together, chosen from, and read through a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput
from dcfpca.rpca.columns import BLOCK_BYTES, ArrayColumns, block_width
from dcfpca.rpca.method import Columns, FloatArray

WINDOW_BYTES = 32 << 20
WINDOW_SHARE = 64  # of the memory limit is a window: several are worked on at once, and results take as much again
HELD_SHARE = 4  # a matrix smaller than this share of the memory limit is held in memory


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Columns with the names of their rows, where the data has names."""

    columns: Columns
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class JoinedColumns:
    """Parts of one matrix, side by side."""

    parts: tuple[Columns, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.parts[0].shape[0], sum(part.shape[1] for part in self.parts)

    @property
    def grain(self) -> int:
        """Of the part with the coarsest."""
        return max(grain_of(part) for part in self.parts)

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1, from as many parts as they lie in."""
        found, begin = [], 0
        for part in self.parts:
            end = begin + part.shape[1]
            if start < end and begin < stop:
                found.append(part.read(max(start, begin) - begin, min(stop, end) - begin))
            begin = end
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class ChosenColumns:
    """Some rows of a matrix, in an order of their own."""

    columns: Columns
    rows: NDArray[np.intp]

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return len(self.rows), self.columns.shape[1]

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        return self.columns.read(start, stop)[self.rows]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedColumns:
    """An array that its format decodes in chunks of `grain` columns."""

    shape: tuple[int, int]
    fetch: Callable[[int, int], NDArray[np.generic]]
    grain: int

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        return np.asarray(self.fetch(start, stop), dtype=np.float64)


@dataclass(slots=True, eq=False)
class WindowedColumns:
    """Reads a stretch of columns at a time and hands out pieces of it.

    Small blocks suit a core's cache but not a disk, nor a format that decodes whole chunks. This window and the next,
    which is read while this one is worked on, are all that is held in memory, whatever the number of columns. Whoever
    asks for exactly a window gets it as it was read, and nothing is held; several threads may do so at once.
    """

    source: Columns
    width: int
    _begin: int = 0
    _held: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    _ahead: tuple[int, Future[FloatArray]] | None = None
    _reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "read-ahead"))
    _lock: Lock = field(default_factory=Lock)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.source.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1, from the window if it lies there."""
        if start % self.width == 0 and stop == min(start + self.width, self.shape[1]):
            return self.source.read(start, stop)
        with self._lock:
            if not self._begin <= start <= stop <= self._begin + self._held.shape[1]:
                self._move(start, stop)
            piece = self._held[:, start - self._begin : stop - self._begin]
            if stop == self.shape[1]:
                self._held = np.zeros((0, 0))  # the pass is over
            return piece

    def _move(self, start: int, stop: int) -> None:
        begin = start - start % self.width
        end = min(max(begin + self.width, stop), self.shape[1])
        self._held = np.zeros((0, 0))  # before the next is read, so that there are never three
        self._held, self._begin = self._window(begin, end), begin
        if end < self.shape[1]:
            self._ahead = end, self._reader.submit(self.source.read, end, min(end + self.width, self.shape[1]))

    def _window(self, begin: int, end: int) -> FloatArray:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == begin and ahead[1].result().shape[1] >= end - begin:
            return ahead[1].result()
        return self.source.read(begin, end)


def bounded(columns: Columns, memory_limit: int) -> Columns:
    """The columns behind a window where they are read from disk; held whole where they are small beside the limit."""
    grain, (rows, count) = grain_of(columns), columns.shape
    if grain == 0:
        return columns
    if 8 * rows * count <= memory_limit // HELD_SHARE:
        return ArrayColumns(columns.read(0, count))
    window_bytes = min(WINDOW_BYTES, memory_limit // WINDOW_SHARE) if memory_limit else WINDOW_BYTES
    whole = block_width(rows) if grain == 1 and window_bytes >= BLOCK_BYTES else grain
    return WindowedColumns(columns, window_width(rows, whole, window_bytes))


def grain_of(columns: Columns) -> int:
    """How many columns the disk gives at a time; 0 for those that need no reading."""
    return int(getattr(columns, "grain", 0))


def window_width(rows: int, chunk: int = 1, window_bytes: int = WINDOW_BYTES) -> int:
    """How many columns of this many rows make a window: whole chunks, one at least."""
    wanted = max(1, window_bytes // (8 * max(rows, 1)))
    return max(chunk, wanted - wanted % chunk)


def choose(matrix: Matrix, wanted: Sequence[str], origin: str) -> Matrix:
    """The named features, in this order; those that the data lacks are named."""
    if not wanted or tuple(wanted) == matrix.features:
        return matrix
    if not matrix.features:
        hint = "give [data] feature_names, a file with one name per line, or use a format that has names"
        raise BadInput(f"the data {origin} has no feature names to choose by", hint)
    if absent := missing_features(matrix.features, wanted):
        hint = f"it has {_some(matrix.features)}"
        raise BadInput(f"the data {origin} lacks the features {_some(absent)}", hint)
    places = {name: place for place, name in enumerate(matrix.features)}
    rows = np.array([places[name] for name in wanted], dtype=np.intp)
    return Matrix(ChosenColumns(matrix.columns, rows), tuple(wanted))


def missing_features(there: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Which of the wanted features are not there."""
    known = set(there)
    return [name for name in wanted if name not in known]


def check_names(names: Sequence[str], origin: str) -> None:
    """Refuse names that occur twice: a choice by name would be a guess."""
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BadInput(f"the data {origin} has two features named {_some(twice)}", "rename one of them")


def _some(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"

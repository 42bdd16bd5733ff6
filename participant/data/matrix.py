"""The site's matrix, independent of its format: `Columns` joined, selected by feature, and read through a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput, did_you_mean, listed
from dcfpca.rpca.column_blocks import BLOCK_BYTES, ArrayColumns, block_width
from dcfpca.rpca.method import Columns, FloatArray
from participant.data.data_config import RulesTable

Indices = NDArray[np.intp]
LACKING = -1
"""Stands for a feature that the data does not have: a row of NaN."""


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The given features (LACKING: unobserved) in the given order, the given samples in ascending order; None: all."""

    columns: Columns
    rows: Indices | None = None
    samples: Indices | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        rows, count = self.columns.shape
        return rows if self.rows is None else len(self.rows), count if self.samples is None else len(self.samples)

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1 of the selection."""
        return take_rows(read_samples(self.columns, self.samples, start, stop), self.rows)


def selected(columns: Columns, *, rows: Indices | None = None, samples: Indices | None = None) -> Selection:
    """A selection of these columns; one of a selection is a single selection of what lies below it."""
    if not isinstance(columns, Selection):
        return Selection(columns, rows, samples)
    return Selection(columns.columns, _composed_rows(rows, columns.rows), composed(samples, columns.samples))


def take_rows(block: FloatArray, rows: Indices | None) -> FloatArray:
    """These rows of a block, all if None; NaN where a row is LACKING."""
    if rows is None:
        return block
    chosen = block[rows]
    lacking = rows == LACKING
    if lacking.any():
        chosen = chosen.astype(np.float64)
        chosen[lacking] = np.nan
    return chosen


def read_samples(columns: Columns, samples: Indices | None, start: int, stop: int) -> FloatArray:
    """Columns start … stop − 1 of those that are chosen."""
    if samples is None or start == stop:
        return columns.read(start, stop)
    wanted = samples[start:stop]
    first, end = int(wanted[0]), int(wanted[-1]) + 1
    block = columns.read(first, end)
    return block if end - first == stop - start else block[:, wanted - first]


def composed(outer: Indices | None, inner: Indices | None) -> Indices | None:
    """The indices that choosing `inner` and then `outer` of it give."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return inner[outer]


def _composed_rows(outer: Indices | None, inner: Indices | None) -> Indices | None:
    both = composed(outer, inner)
    if outer is None or inner is None or both is None:
        return both
    return np.where(outer == LACKING, LACKING, both)


WINDOW_BYTES = 32 << 20
WINDOW_SHARE = 64  # a window takes 1/64 of the memory limit: several are in use, and results need as much
HELD_SHARE = 4  # a matrix below 1/4 of the memory limit is held in memory


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Columns with the names of their features and the ids of their samples, if the data has them.

    `persons` names the person of each sample (`[data] person_column` or `persons`); empty: every sample is another.
    `samples` are the positions of the samples in the source when some were left out, `lines` the line of the source in
    which each of its samples stands, if a spreadsheet would show it so. `notes` are sentences about what
    was recognised while reading. `selected`: `[data] features` and `exclude` have been applied. `samples_in_rows`: a
    line of the source is a sample. `rules` are those of the site.
    """

    columns: Columns
    features: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    persons: tuple[str, ...] = ()
    samples: Indices | None = None
    notes: tuple[str, ...] = ()
    selected: bool = False
    samples_in_rows: bool = False
    rules: RulesTable = field(default_factory=RulesTable)
    lines: Sequence[int] | None = None

    def all_ids(self) -> Iterator[str]:
        """The ids of the samples in order."""
        return (self.id_at(place) for place in range(self.columns.shape[1]))

    def id_at(self, place: int) -> str:
        """The id of a sample; without ids its line in the source, or its number counted from 0."""
        if self.ids:
            return self.ids[place]
        position = place if self.samples is None else int(self.samples[place])
        return str(position) if self.lines is None else f"line {self.lines[position]}"


@dataclass(frozen=True, slots=True, eq=False)
class JoinedColumns:
    """Parts of one matrix, side by side."""

    parts: tuple[Columns, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.parts[0].shape[0], sum(part.shape[1] for part in self.parts)

    @property
    def chunk_width(self) -> int:
        """The largest chunk width of any part."""
        return max(chunk_width_of(part) for part in self.parts)

    @property
    def reads_ahead(self) -> bool:
        """Whether all parts do."""
        return all(reads_ahead(part) for part in self.parts)

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1, from all parts that contain some of them."""
        found, begin = [], 0
        for part in self.parts:
            end = begin + part.shape[1]
            if start < end and begin < stop:
                found.append(part.read(max(start, begin) - begin, min(stop, end) - begin))
            begin = end
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedColumns:
    """An array whose format decodes chunks of `chunk_width` columns."""

    shape: tuple[int, int]
    fetch: Callable[[int, int], NDArray[np.generic]]
    chunk_width: int

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        return np.asarray(self.fetch(start, stop), dtype=np.float64)


@dataclass(slots=True, eq=False)
class WindowedColumns:
    """Reads a window of columns at a time and returns blocks of it.

    Small blocks suit a core's cache but not a disk, nor a format that decodes whole chunks. Only this window and the
    next one, which is read ahead, are held in memory, whatever the number of columns; a pass over all columns in order
    reads each once. A read of exactly one window, or of one column that is not held, is passed to the source and not
    held; several threads may do so at the same time.
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
        """Columns start … stop − 1, from the window if it contains them."""
        if start == stop or (start % self.width == 0 and stop == min(start + self.width, self.shape[1])):
            return self.source.read(start, stop)
        with self._lock:
            if stop == start + 1 and not self._holds(start):
                return self.source.read(start, stop)
            pieces = list(self._pieces(start, stop))
            if stop == self.shape[1]:
                self._held = np.zeros((0, 0))  # the pass is over
            return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=1)

    def _pieces(self, start: int, stop: int) -> Iterator[FloatArray]:
        """What each window has of these columns, from one window to the next."""
        while start < stop:
            if not self._holds(start):
                self._move(start - start % self.width)
            end = min(stop, self._begin + self._held.shape[1])
            yield self._held[:, start - self._begin : end - self._begin]
            start = end

    def _holds(self, column: int) -> bool:
        return bool(self._begin <= column < self._begin + self._held.shape[1])

    def _move(self, begin: int) -> None:
        end = min(begin + self.width, self.shape[1])
        self._held = np.zeros((0, 0))  # released before the next read, so that there are never three windows
        self._held, self._begin = self._window(begin, end), begin
        if end < self.shape[1]:
            self._ahead = end, self._reader.submit(self.source.read, end, min(end + self.width, self.shape[1]))

    def _window(self, begin: int, end: int) -> FloatArray:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == begin and ahead[1].result().shape[1] >= end - begin:
            return ahead[1].result()
        return self.source.read(begin, end)


def bounded(columns: Columns, memory_limit: int) -> Columns:
    """Columns read from disk: behind a window, or loaded if small compared with the limit; others unchanged."""
    chunk, (rows, count) = chunk_width_of(columns), columns.shape
    if chunk == 0:
        return columns
    if 8 * rows * count <= memory_limit // HELD_SHARE:
        return ArrayColumns(columns.read(0, count))
    window_bytes = min(WINDOW_BYTES, memory_limit // WINDOW_SHARE) if memory_limit else WINDOW_BYTES
    whole = block_width(rows) if chunk == 1 and window_bytes >= BLOCK_BYTES else chunk
    return WindowedColumns(columns, window_width(rows, whole, window_bytes))


def chunk_width_of(columns: Columns) -> int:
    """How many columns are read from disk at a time; 0 for columns in memory or mapped."""
    return int(getattr(columns, "chunk_width", 0))


def reads_ahead(columns: Columns) -> bool:
    """Whether reading some columns has the following ones fetched from disk without anybody waiting for them."""
    return bool(getattr(columns, "reads_ahead", False))


def window_width(rows: int, chunk: int = 1, window_bytes: int = WINDOW_BYTES) -> int:
    """Columns in a window: whole chunks, at least one, within `window_bytes` if possible."""
    wanted = max(1, window_bytes // (8 * max(rows, 1)))
    return max(chunk, wanted - wanted % chunk)


def select_features(matrix: Matrix, wanted: Sequence[str], origin: str, *, may_lack: bool = False) -> Matrix:
    """The named features, in this order; BadInput names those that the data lacks, unless it may: they are NaN."""
    if not wanted or tuple(wanted) == matrix.features:
        return matrix
    if not matrix.features:
        hint = "give [data] feature_names, a file with one name per line, or use a format that has names"
        raise BadInput(f"the data {origin} has no feature names to select by", hint)
    known = set(matrix.features)
    if (absent := [name for name in wanted if name not in known]) and not (may_lack and known & set(wanted)):
        hint = did_you_mean(absent[0], matrix.features) or f"it has {listed(matrix.features)}"
        raise BadInput(f"the data {origin} lacks the features {listed(absent)}", hint)
    places = {name: place for place, name in enumerate(matrix.features)}
    rows = np.array([places.get(name, LACKING) for name in wanted], dtype=np.intp)
    return replace(matrix, columns=selected(matrix.columns, rows=rows), features=tuple(wanted))


def keep_samples(matrix: Matrix, kept: Indices) -> Matrix:
    """The samples at these positions, with their ids."""
    if len(kept) == matrix.columns.shape[1]:
        return matrix
    ids = tuple(matrix.ids[place] for place in kept) if matrix.ids else ()
    persons = tuple(matrix.persons[place] for place in kept) if matrix.persons else ()
    samples = composed(kept, matrix.samples)
    chosen = selected(matrix.columns, samples=kept)
    return replace(matrix, columns=chosen, ids=ids, persons=persons, samples=samples)


def check_names(names: Sequence[str], origin: str) -> None:
    """Refuse names that occur twice: selecting by name would be ambiguous."""
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise BadInput(f"the data {origin} has two features named {listed(twice)}", "rename one of them")

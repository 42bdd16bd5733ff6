"""Entries that a run hides from its own fit, so that it can measure afterwards how well the fit predicts them.

The seed of the run, the entry's row and the content of its column decide, not the column's place: the same columns
split over other sites hide the same entries. Equal columns are numbered within their site, so that they do not all hide
the same entries.

Loops are compiled where numba is installed. All is arithmetic of whole numbers modulo 2⁶⁴, so that they give the bits
that numpy gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.column_blocks import blocks, read_only, readable_by_loops
from dcfpca.rpca.kernels.compiled_loops import STRICT, compiler
from dcfpca.rpca.method import Columns, FloatArray

Keys = NDArray[np.uint64]
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


@dataclass(frozen=True, slots=True)
class HiddenEntryLoops:
    """The compiled loops."""

    add_to_keys: Callable[[FloatArray, Keys], None]
    mark_hidden: Callable[[Keys, np.uint64, NDArray[np.bool_]], None]
    hide: Callable[[Keys, np.uint64, FloatArray], None]


def add_to_keys(M: FloatArray, keys: Keys) -> None:
    """Mix the entries of M into the keys of its columns, which are zero before. M may have more columns."""
    for i in range(M.shape[0]):
        row = np.uint64(i + 1) * GOLDEN
        for j in range(keys.shape[0]):
            entry = np.float64(M[i, j] + 0.0 if M[i, j] == M[i, j] else 0.0)  # one zero, and missing entries are zero
            bits = entry.view(np.uint64)
            key = bits + row
            key = (key ^ (key >> SHIFTS[0])) * FIRST
            key = (key ^ (key >> SHIFTS[1])) * SECOND
            keys[j] ^= key ^ (key >> SHIFTS[2])


def mark_hidden(keys: Keys, most: np.uint64, hidden: NDArray[np.bool_]) -> None:
    """hidden ← whether an entry's row, mixed with the key of its column, is below `most`."""
    for i in range(hidden.shape[0]):
        row = np.uint64(i + 1) * FIRST
        for j in range(keys.shape[0]):
            key = keys[j] + row
            key = (key ^ (key >> SHIFTS[0])) * FIRST
            key = (key ^ (key >> SHIFTS[1])) * SECOND
            hidden[i, j] = (key ^ (key >> SHIFTS[2])) < most


def hide(keys: Keys, most: np.uint64, shown: FloatArray) -> None:
    """NaN for the entries that `mark_hidden` marks."""
    for i in range(shown.shape[0]):
        row = np.uint64(i + 1) * FIRST
        for j in range(keys.shape[0]):
            key = keys[j] + row
            key = (key ^ (key >> SHIFTS[0])) * FIRST
            key = (key ^ (key >> SHIFTS[1])) * SECOND
            shown[i, j] = np.nan if (key ^ (key >> SHIFTS[2])) < most else shown[i, j]


@lru_cache(maxsize=1)
def compiled_loops() -> HiddenEntryLoops | None:
    """The compiled loops, or None without numba; fixed for the process."""
    compile_one = compiler()
    if compile_one is None:
        return None
    return HiddenEntryLoops(*(compile_one(loop, STRICT) for loop in (add_to_keys, mark_hidden, hide)))


def load_hidden_entry_loops() -> None:
    """Call every loop once, which loads it from numba's cache or compiles it; without numba it does nothing."""
    loops = compiled_loops()
    if loops is not None:
        keys = np.zeros(2, np.uint64)
        loops.add_to_keys(read_only(np.zeros((2, 2))), keys)
        loops.mark_hidden(keys, np.uint64(0), np.zeros((2, 2), np.bool_))
        loops.hide(keys, np.uint64(0), np.zeros((2, 2)))


Places = NDArray[np.intp]
MASK = (1 << 64) - 1
STRIP = 1 << 14  # entries that are drawn at a time: what that takes fits a core's cache


@dataclass(slots=True, eq=False)
class HiddenColumns:
    """A site's columns with the hidden entries as unobserved while `hiding`, and as they are afterwards.

    For a range that is read more than once the places of hidden entries are kept, because finding them takes longer
    than reading.
    """

    columns: Columns
    share: float
    seed: int
    hiding: bool = True
    keys: Keys = field(default_factory=lambda: np.zeros(0, np.uint64))  # by column; empty until they are needed
    _places: dict[tuple[int, int], Places | None] = field(default_factory=dict, init=False)  # None: read once so far

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.columns.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        return self.shown_of(self.columns.read(start, stop), start)

    def shown_of(self, block: FloatArray, start: int) -> FloatArray:
        """The visible entries of this block of columns, which begins at `start`."""
        if not self.hiding or self.share <= 0.0:
            return block
        shown, stop = np.array(block, order="C"), start + block.shape[1]
        cut, loops = (start, stop), compiled_loops()
        if loops is not None and cut not in self._places:
            self._places[cut] = None
            loops.hide(*self._drawn(slice(start, stop)), shown)
        else:
            shown.reshape(-1)[self._hidden_places(cut)] = np.nan
        return shown

    def hidden(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which entries of columns start … stop − 1 are hidden, observed or not: about this share of them."""
        return self.hidden_at(slice(start, stop))

    def hidden_at(self, places: Places | slice) -> NDArray[np.bool_]:
        """… of these columns."""
        keys, most = self._drawn(places)
        hidden, loops = np.empty((self.shape[0], keys.size), np.bool_), compiled_loops()
        (numpy_mark_hidden if loops is None else loops.mark_hidden)(keys, most, hidden)
        return hidden

    def sampled(self, start: int, stop: int, share: float) -> NDArray[np.bool_]:
        """Which of columns start … stop − 1 are in a sample of this share, by their content and the seed."""
        if share >= 1.0:
            return np.ones(stop - start, dtype=bool)
        return np.asarray(mixed(self._drawn(slice(start, stop))[0]) < np.uint64(share * 2.0**64))

    def parts(self, places: Places | slice, count: int) -> NDArray[np.uint64]:
        """In which of this many equal parts the entries of these columns are, by row and by the content of the column
        alone: the same parts for the same data, whatever the seed."""
        rows = np.arange(1, self.shape[0] + 1, dtype=np.uint64)[:, None] * FIRST
        return np.asarray(mixed(~self._content()[places] + rows) // np.uint64(2**64 // count + 1))

    def _content(self) -> Keys:
        """The keys of all columns."""
        if self.keys.size != self.shape[1]:
            self.keys = _numbered(np.concatenate([column_keys(self.columns.read(*cut)) for cut in blocks(self)]))
        return self.keys

    def _drawn(self, places: Places | slice) -> tuple[Keys, np.uint64]:
        """What an entry is drawn with: the keys of these columns under the seed, and the bound below which it hides."""
        keys = self._content()[places]
        return keys + np.uint64(self.seed * int(SECOND) & MASK), np.uint64(self.share * 2.0**64)

    def _hidden_places(self, cut: tuple[int, int]) -> Places:
        """The places of the hidden entries in the block of these columns, row by row."""
        if (found := self._places.get(cut)) is None:
            found = self._places[cut] = np.flatnonzero(self.hidden(*cut))
        return found


def column_keys(block: FloatArray) -> Keys:
    """A number per column that follows from its content; equal columns have equal keys, others hardly ever."""
    keys, loops = np.zeros(block.shape[1], np.uint64), compiled_loops()
    if loops is None:
        numpy_add_to_keys(block, keys)
    else:
        loops.add_to_keys(readable_by_loops(block), keys)
    return keys


def numpy_add_to_keys(M: FloatArray, keys: Keys) -> None:
    """The same loop in numpy, where there is no compiler."""
    values: Keys = np.ascontiguousarray(np.where(np.isnan(M), 0.0, M) + 0.0).view(np.uint64)
    rows = np.arange(1, M.shape[0] + 1, dtype=np.uint64)[:, None]
    keys ^= np.bitwise_xor.reduce(mixed(np.add(values, rows * GOLDEN, dtype=np.uint64)), axis=0)


def numpy_mark_hidden(keys: Keys, most: np.uint64, hidden: NDArray[np.bool_]) -> None:
    """The same loop in numpy, where there is no compiler."""
    rows = np.arange(1, hidden.shape[0] + 1, dtype=np.uint64)[:, None] * FIRST
    height = max(1, STRIP // max(keys.size, 1))
    for first in range(0, hidden.shape[0], height):
        np.less(mixed(keys + rows[first : first + height]), most, out=hidden[first : first + height])


def _numbered(keys: Keys) -> Keys:
    """Makes equal keys unique by their rank among equals."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    places = np.arange(keys.size)
    before = np.empty(keys.size, np.uint64)
    before[order] = (places - np.maximum.accumulate(np.where(first, places, 0))).astype(np.uint64)
    return keys + before * GOLDEN


def mixed(key: Keys) -> Keys:
    """A bijection of 64-bit numbers whose output bits each depend on all input bits (the finalizer of SplitMix64), in
    place."""
    for shift, factor in zip(SHIFTS, (FIRST, SECOND), strict=False):
        key ^= key >> shift
        key *= factor
    key ^= key >> SHIFTS[-1]
    return key

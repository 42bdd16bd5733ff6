"""Entries that a run hides from its own fit, to see afterwards how well the fit predicts them.

Which entries are hidden follows from the seed of the run, the entry's row and the content of its column, not from the
column's place: the same columns dealt out to other sites have the same entries hidden. Columns that are equal are
numbered within their site, so that not all of them hide the same entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Columns, FloatArray

Keys = NDArray[np.uint64]
Places = NDArray[np.intp]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
MASK = (1 << 64) - 1
STRIP = 1 << 14  # entries that are drawn at a time: what that takes fits a core's cache


@dataclass(slots=True, eq=False)
class HiddenColumns:
    """A site's columns with the hidden entries as unobserved while `hiding`, and as they are afterwards.

    Where entries are hidden is found once for each range that is read, and remembered: it takes longer than reading.
    """

    columns: Columns
    share: float
    seed: int
    hiding: bool = True
    keys: Keys = field(default_factory=lambda: np.zeros(0, np.uint64))  # by column; empty until they are needed
    _places: dict[tuple[int, int], Places] = field(default_factory=dict, init=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.columns.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        block = self.columns.read(start, stop)
        if not self.hiding or self.share <= 0.0:
            return block
        shown = np.array(block, order="C")
        shown.reshape(-1)[self._hidden_places(start, stop)] = np.nan
        return shown

    def hidden(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which entries of columns start … stop − 1 are hidden, observed or not: about this share of them."""
        if self.keys.size != self.shape[1]:
            self.keys = _numbered(np.concatenate([column_keys(self.columns.read(*cut)) for cut in blocks(self)]))
        keys, count = self.keys[start:stop] + np.uint64(self.seed * int(_SECOND) & MASK), self.shape[0]
        rows = np.arange(1, count + 1, dtype=np.uint64)[:, None] * _FIRST
        hidden, most = np.empty((count, keys.size), np.bool_), np.uint64(self.share * 2.0**64)
        height = max(1, STRIP // max(keys.size, 1))
        for first in range(0, count, height):
            np.less(_mixed(keys + rows[first : first + height]), most, out=hidden[first : first + height])
        return hidden

    def _hidden_places(self, start: int, stop: int) -> Places:
        """The places of the hidden entries in the block start … stop − 1, row by row."""
        if (start, stop) not in self._places:
            self._places[start, stop] = np.flatnonzero(self.hidden(start, stop))
        return self._places[start, stop]


def column_keys(block: FloatArray) -> Keys:
    """A number per column that follows from its content; equal columns have equal keys, others hardly ever."""
    values: Keys = np.ascontiguousarray(np.where(np.isnan(block), 0.0, block) + 0.0).view(np.uint64)
    rows = np.arange(1, block.shape[0] + 1, dtype=np.uint64)[:, None]
    mixed: Keys = np.bitwise_xor.reduce(_mixed(np.add(values, rows * _GOLDEN, dtype=np.uint64)), axis=0)
    return mixed


def _numbered(keys: Keys) -> Keys:
    """Keys of which those that were equal differ by how many came before."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    places = np.arange(keys.size)
    before = np.empty(keys.size, np.uint64)
    before[order] = (places - np.maximum.accumulate(np.where(first, places, 0))).astype(np.uint64)
    return keys + before * _GOLDEN


def _mixed(key: Keys) -> Keys:
    """A bijection of 64-bit numbers whose output bits each depend on all input bits (the finalizer of SplitMix64), in
    place."""
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        key ^= key >> np.uint64(shift)
        key *= factor
    key ^= key >> np.uint64(31)
    return key

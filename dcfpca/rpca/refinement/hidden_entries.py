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
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
MASK = (1 << 64) - 1


@dataclass(slots=True, eq=False)
class HiddenColumns:
    """A site's columns with the hidden entries as unobserved while `hiding`, and as they are afterwards."""

    columns: Columns
    share: float
    seed: int
    hiding: bool = True
    _keys: Keys | None = field(default=None, init=False)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.columns.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        block = self.columns.read(start, stop)
        if not self.hiding or self.share <= 0.0:
            return block
        return np.where(self.hidden(start, stop), np.nan, block)

    def hidden(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Which entries of columns start … stop − 1 are hidden, observed or not: about this share of them."""
        if self._keys is None:
            self._keys = _numbered(np.concatenate([column_keys(self.columns.read(*cut)) for cut in blocks(self)]))
        rows = np.arange(1, self.shape[0] + 1, dtype=np.uint64)[:, None]
        drawn = _mixed(self._keys[start:stop] + rows * _FIRST + np.uint64(self.seed * int(_SECOND) & MASK))
        hidden: NDArray[np.bool_] = drawn < np.uint64(self.share * 2.0**64)
        return hidden


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
    """A bijection of 64-bit numbers whose output bits each depend on all input bits (the finalizer of SplitMix64)."""
    key = (key ^ (key >> np.uint64(30))) * _FIRST
    key = (key ^ (key >> np.uint64(27))) * _SECOND
    return key ^ (key >> np.uint64(31))

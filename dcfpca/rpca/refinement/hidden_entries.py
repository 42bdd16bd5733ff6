"""Entries that a run hides from its own fit, to see afterwards how well the fit predicts them.

Which entries are hidden follows from the seed of the run, the entry's row and the content of its column, not from the
column's place: the same columns dealt out to other sites have the same entries hidden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import Columns, FloatArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@dataclass(slots=True, eq=False)
class HiddenColumns:
    """A site's columns with the hidden entries as unobserved while `hiding`, and as they are afterwards."""

    columns: Columns
    share: float
    seed: int
    hiding: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.columns.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        block = self.columns.read(start, stop)
        if not self.hiding or self.share <= 0.0:
            return block
        return np.where(hidden_entries(block, self.share, self.seed), np.nan, block)


def hidden_entries(block: FloatArray, share: float, seed: int) -> NDArray[np.bool_]:
    """Which observed entries of these columns are hidden: about this share of them."""
    values = np.ascontiguousarray(np.where(np.isnan(block), 0.0, block) + 0.0).view(np.uint64)
    rows = np.arange(1, block.shape[0] + 1, dtype=np.uint64)[:, None]
    keys: NDArray[np.uint64] = np.add(values, rows * _GOLDEN, dtype=np.uint64)
    column = np.bitwise_xor.reduce(_mixed(keys), axis=0)
    drawn = _mixed(column[None, :] + rows * _FIRST + np.uint64(seed) * _SECOND)
    hidden: NDArray[np.bool_] = (drawn < np.uint64(share * 2.0**64)) & ~np.isnan(block)
    return hidden


def _mixed(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit numbers whose output bits each depend on all input bits (the finalizer of SplitMix64)."""
    key = (key ^ (key >> np.uint64(30))) * _FIRST
    key = (key ^ (key >> np.uint64(27))) * _SECOND
    return key ^ (key >> np.uint64(31))

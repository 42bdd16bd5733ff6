"""Which entries are hidden, as plain loops; `hidden_entries` says the same in numpy, where there is no compiler.

All is arithmetic of whole numbers modulo 2⁶⁴, so that compiled loops give the bits that numpy gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.kernels.numba_compiler import STRICT, compiler
from dcfpca.rpca.kernels.scratch_buffers import read_only
from dcfpca.rpca.method import FloatArray

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

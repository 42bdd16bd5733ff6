"""Columns of a matrix in a file of raw numbers, read with `pread` instead of a memory map.

Pages of a memory map that were read count as the process's memory; here the only memory is what `read` returns. Several
threads may read at the same time.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray

READ_AHEAD = 3  # times the bytes of a read


class RawFileColumns:
    """Consecutive lines of numbers starting at `offset`; each line is a column of the matrix, or a row of it."""

    chunk_width = 1

    def __init__(
        self,
        descriptor: int,
        origin: str,
        lines: tuple[int, int],
        *,
        dtype: np.dtype[Any],
        offset: int,
        lines_are_columns: bool,
    ) -> None:
        """Owns the open file `descriptor`; `lines` is the number of lines and of numbers in each."""
        self._descriptor, self._origin = descriptor, origin
        self._lines, self._length = lines
        self._dtype, self._offset, self._lines_are_columns = dtype, offset, lines_are_columns
        weakref.finalize(self, os.close, descriptor)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return (self._length, self._lines) if self._lines_are_columns else (self._lines, self._length)

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        if self._lines_are_columns:
            held = np.empty((stop - start, self._length), self._dtype)
            # Interleaved reads of several threads look random to the kernel, so its read-ahead is requested explicitly.
            place, size = self._offset + stop * self._length * self._dtype.itemsize, READ_AHEAD * held.nbytes
            os.posix_fadvise(self._descriptor, place, size, os.POSIX_FADV_WILLNEED)
            self._fill(held, start * self._length)
            return np.asarray(held, np.float64).T
        held = np.empty((self._lines, stop - start), self._dtype)
        for line in range(self._lines):
            self._fill(held[line], line * self._length + start)
        return np.asarray(held, np.float64)

    def _fill(self, target: NDArray[Any], first: int) -> None:
        place = self._offset + first * self._dtype.itemsize
        rest = target.reshape(-1).view(np.uint8).data
        while rest:
            done = os.preadv(self._descriptor, [rest], place)
            if done == 0:
                raise BadInput(f"the data {self._origin} is shorter than it was when it was opened", "write it again")
            rest, place = rest[done:], place + done


def raw_columns_of(path: Path, array: np.memmap[Any, Any], *, turned: bool) -> RawFileColumns:
    """The array of an .npy file; of its memory map only shape, order and offset are used."""
    by_columns = array.flags.f_contiguous and not array.flags.c_contiguous
    lines = array.shape[::-1] if by_columns else array.shape
    return RawFileColumns(
        os.open(path, os.O_RDONLY),
        str(path),
        (lines[0], lines[1]),
        dtype=array.dtype,
        offset=array.offset,
        lines_are_columns=by_columns != turned,
    )

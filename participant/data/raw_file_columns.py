"""Columns of a matrix in a file of raw numbers, and tables spilled to such files.

Under a memory limit they are read with `pread` instead of a memory map: pages of a map that were read count as the
process's memory; here the only memory is what `read` returns. Several threads may read at the same time.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.atomic_files import make_directories
from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Columns, FloatArray

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
    def reads_ahead(self) -> bool:
        """Whether a read has the kernel fetch what follows, so that nobody needs to wait for the disk meanwhile."""
        return self._lines_are_columns

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return (self._length, self._lines) if self._lines_are_columns else (self._lines, self._length)

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        if not self._lines_are_columns:
            return self._read_across(start, stop)
        held, each = np.empty((stop - start, self._length), self._dtype), self._length * self._dtype.itemsize
        # Interleaved reads of several threads look random to the kernel, so its read-ahead is requested explicitly: by
        # another thread, because the kernel makes room for all of it before it returns.
        ahead = self._offset + stop * each, READ_AHEAD * held.nbytes
        with suppress(RuntimeError):  # no thread can be had, or the process is ending: the file is read all the same
            _advising_thread().submit(os.posix_fadvise, self._descriptor, *ahead, os.POSIX_FADV_WILLNEED)
        self._fill(_bytes_of(held), self._offset + start * each)
        return np.asarray(held, np.float64).T

    def _read_across(self, start: int, stop: int) -> FloatArray:
        """A piece of every line."""
        held, size = np.empty((self._lines, stop - start), self._dtype), self._dtype.itemsize
        room, each, place = _bytes_of(held), (stop - start) * size, self._offset + start * size
        for line in range(self._lines):
            self._fill(room[line * each : (line + 1) * each], place + line * self._length * size)
        return np.asarray(held, np.float64)

    def _fill(self, target: memoryview, place: int) -> None:
        while (done := os.preadv(self._descriptor, [target], place)) < target.nbytes:
            if done == 0:
                raise BadInput(f"the data {self._origin} is shorter than it was when it was opened", "write it again")
            target, place = target[done:], place + done


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


@lru_cache(maxsize=1)
def _advising_thread() -> ThreadPoolExecutor:
    """One thread for all files: a site may have hundreds. Advice on a file that is closed by then does nothing."""
    return ThreadPoolExecutor(1, "read-ahead")


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


def spill(
    batches: Iterable[FloatArray], origin: str, directory: Path | None, *, turned: bool, memory_limit: int
) -> Columns:
    """Batches of table rows, each lines × entries, as columns of a temporary file; `turned`: a row is a sample.

    A run reads the matrix many times; text and compressed columns are decoded only once. The file has no name, so
    nothing of it remains when the process ends, in whatever way.
    """
    if directory is not None:
        make_directories(directory)
    lines = width = 0
    with TemporaryFile(dir=directory) as file:
        for batch in batches:
            file.write(np.ascontiguousarray(batch, np.float64).data)
            lines, width = lines + batch.shape[0], batch.shape[1]
        if lines == 0 or width == 0:
            raise BadInput(f"the data {origin} is empty: it has no lines of numbers", "check how it was written")
        file.flush()
        if memory_limit:
            kind = np.dtype(np.float64)
            place = os.dup(file.fileno())
            return RawFileColumns(place, origin, (lines, width), dtype=kind, offset=0, lines_are_columns=turned)
        array = np.memmap(file, np.float64, "r", shape=(lines, width))
    return ArrayColumns(array.T if turned else array)

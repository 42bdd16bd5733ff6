"""Spills a table to disk: read once, in batches, into an unnamed temporary file that is then mapped.

A run reads the matrix many times; text and compressed columns are decoded only once. The file has no name, so nothing
of it remains when the process ends, in whatever way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Columns, FloatArray
from participant.data.raw_file_columns import RawFileColumns


def spill(
    batches: Iterable[FloatArray], origin: str, directory: Path | None, *, turned: bool, memory_limit: int
) -> Columns:
    """Batches of table rows, each lines × entries, as columns; `turned`: a table row is a sample."""
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    lines = width = 0
    with TemporaryFile(dir=directory) as file:
        for batch in batches:
            file.write(np.ascontiguousarray(batch, np.float64).data)
            lines, width = lines + batch.shape[0], batch.shape[1]
        if lines == 0 or width == 0:
            raise BadInput(f"the data {origin} is empty: it has no rows of numbers", "check how it was written")
        file.flush()
        if memory_limit:
            kind = np.dtype(np.float64)
            place = os.dup(file.fileno())
            return RawFileColumns(place, origin, (lines, width), dtype=kind, offset=0, lines_are_columns=turned)
        array = np.memmap(file, np.float64, "r", shape=(lines, width))
    return ArrayColumns(array.T if turned else array)

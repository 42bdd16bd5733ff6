"""Tables on their way to the disk: read once, in batches, into a nameless temporary file that is then mapped.

A run passes over the matrix a hundred times; text and compressed columns are decoded once. The file has no name, so
nothing of it is left when the process ends, however it ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.columns import ArrayColumns
from dcfpca.rpca.exchange import Columns, FloatArray
from participant.data.arrays import windowed


def spool(
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
        array = np.memmap(file, np.float64, "r", shape=(lines, width))
    if memory_limit and array.nbytes >= memory_limit // 4:
        return windowed(array, turned, memory_limit)
    return ArrayColumns(array.T if turned else array)

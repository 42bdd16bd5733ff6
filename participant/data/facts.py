"""What a review must know about the matrix, found in one pass over column blocks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.columns import blocks
from dcfpca.rpca.entry_checks import check_magnitude, largest_magnitude
from dcfpca.rpca.method import Columns

SCAN_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class DataFacts:
    """Size of the matrix, whether entries are missing, and by which digest the site knows the same data again."""

    rows: int
    columns: int
    missing: int
    sha256: bytes = b""


def measure(columns: Columns, path: Path | str) -> DataFacts:
    """Count missing entries and refuse what no method can use: infinite entries, magnitudes that cannot be squared,
    and a column without any entry."""
    rows, count = columns.shape
    missing, largest, digest = 0, 0.0, hashlib.sha256(f"{rows} × {count}".encode())
    for start, stop in blocks(columns, SCAN_BYTES):
        block = columns.read(start, stop)
        if np.isinf(block).any():
            row, column = (int(place) for place in np.argwhere(np.isinf(block))[0])
            where = f"sample {start + column}, feature {row} (both counted from 0)"
            hint = "replace infinite entries by NaN, which counts as unobserved, or by their values"
            raise BadInput(f"the data {path} has an infinite entry in {where}", hint)
        absent = np.isnan(block)
        if absent.all(axis=0).any():
            column = start + int(np.flatnonzero(absent.all(axis=0))[0])
            hint = "leave the sample out"
            raise BadInput(f"the data {path} has no entry at all in sample {column} (counted from 0)", hint)
        missing += int(np.count_nonzero(absent))
        largest = max(largest, largest_magnitude(block))
        digest.update(np.ascontiguousarray(block, "<f8").data)
    check_magnitude(largest, f"the data {path}")
    return DataFacts(rows, count, missing, digest.digest())

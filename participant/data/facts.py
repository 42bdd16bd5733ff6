"""What a review must know about the matrix, found in one pass over column blocks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.entry_checks import check_magnitude, largest_magnitude
from dcfpca.rpca.method import Columns
from participant.data.matrix import Matrix, keep_samples

SCAN_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class DataFacts:
    """Size without the samples that have no entry, which are listed; missing entries; a digest to know the data by.

    `entries` counts those of each feature, where any is missing.
    """

    rows: int
    columns: int
    missing: int
    empty: tuple[int, ...] = ()
    sha256: bytes = b""
    entries: tuple[int, ...] = ()


def measure(columns: Columns, path: Path | str) -> DataFacts:
    """Count missing entries and empty samples, and refuse what no method can use: infinite entries, magnitudes that
    cannot be squared, and a matrix without any entry."""
    rows, count = columns.shape
    missing, largest, digest = 0, 0.0, hashlib.sha256(f"{rows} × {count}".encode())
    empty: list[int] = []
    entries = np.zeros(rows, np.int64)
    for start, stop in blocks(columns, SCAN_BYTES):
        block = columns.read(start, stop)
        if np.isinf(block).any():
            row, column = (int(place) for place in np.argwhere(np.isinf(block))[0])
            where = f"sample {start + column}, feature {row} (both counted from 0)"
            hint = "replace infinite entries by NaN, which counts as unobserved, or by their values"
            raise BadInput(f"the data {path} has an infinite entry in {where}", hint)
        absent = np.isnan(block)
        empty += (start + np.flatnonzero(absent.all(axis=0))).tolist()
        missing += int(np.count_nonzero(absent))
        entries += np.count_nonzero(~absent, axis=1)
        largest = max(largest, largest_magnitude(block))
        digest.update(np.ascontiguousarray(block, "<f8").data)
    if len(empty) == count:
        raise BadInput(f"the data {path} has no entry at all", "check its format and [data] missing_markers")
    check_magnitude(largest, f"the data {path}")
    missing -= rows * len(empty)
    counted = tuple(entries.tolist()) if missing else ()
    return DataFacts(rows, count - len(empty), missing, tuple(empty), digest.digest(), counted)


def without_empty_samples(matrix: Matrix, facts: DataFacts) -> Matrix:
    """The matrix without the samples that have no entry."""
    if not facts.empty:
        return matrix
    return keep_samples(matrix, np.setdiff1d(np.arange(matrix.columns.shape[1]), facts.empty))

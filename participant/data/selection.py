"""Parts of a matrix: features (rows) and samples (columns) chosen after it was opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import Columns, FloatArray

Indices = NDArray[np.intp]
LACKING = -1
"""Stands for a feature that the data does not have: a row of NaN."""


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The given features (LACKING: unobserved) in the given order, the given samples in ascending order; None: all."""

    columns: Columns
    rows: Indices | None = None
    samples: Indices | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        rows, count = self.columns.shape
        return rows if self.rows is None else len(self.rows), count if self.samples is None else len(self.samples)

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1 of the selection."""
        return take_rows(read_samples(self.columns, self.samples, start, stop), self.rows)


def selected(columns: Columns, *, rows: Indices | None = None, samples: Indices | None = None) -> Selection:
    """A selection of these columns; one of a selection is a single selection of what lies below it."""
    if not isinstance(columns, Selection):
        return Selection(columns, rows, samples)
    return Selection(columns.columns, _composed_rows(rows, columns.rows), composed(samples, columns.samples))


def take_rows(block: FloatArray, rows: Indices | None) -> FloatArray:
    """These rows of a block, all if None; NaN where a row is LACKING."""
    if rows is None:
        return block
    chosen = block[rows]
    lacking = rows == LACKING
    if lacking.any():
        chosen = chosen.astype(np.float64)
        chosen[lacking] = np.nan
    return chosen


def read_samples(columns: Columns, samples: Indices | None, start: int, stop: int) -> FloatArray:
    """Columns start … stop − 1 of those that are chosen."""
    if samples is None or start == stop:
        return columns.read(start, stop)
    wanted = samples[start:stop]
    first, end = int(wanted[0]), int(wanted[-1]) + 1
    block = columns.read(first, end)
    return block if end - first == stop - start else block[:, wanted - first]


def composed(outer: Indices | None, inner: Indices | None) -> Indices | None:
    """The indices that choosing `inner` and then `outer` of it give."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return inner[outer]


def _composed_rows(outer: Indices | None, inner: Indices | None) -> Indices | None:
    both = composed(outer, inner)
    if outer is None or inner is None or both is None:
        return both
    return np.where(outer == LACKING, LACKING, both)

"""Parts of a matrix: features (rows) and samples (columns) chosen after it was opened."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import Columns, FloatArray

Indices = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The given features in the given order, and the given samples in ascending order; None: all."""

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
        block = read_samples(self.columns, self.samples, start, stop)
        return block if self.rows is None else block[self.rows]


def selected(columns: Columns, *, rows: Indices | None = None, samples: Indices | None = None) -> Selection:
    """A selection of these columns; one of a selection is a single selection of what lies below it."""
    if not isinstance(columns, Selection):
        return Selection(columns, rows, samples)
    return Selection(columns.columns, composed(rows, columns.rows), composed(samples, columns.samples))


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

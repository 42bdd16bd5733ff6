"""Sets of columns that a test can tell apart by number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dcfpca.secagg.column_sets import ColumnHasher, ColumnSet


def column_set(count: int, first: int = 0, owners: Sequence[str] = ()) -> ColumnSet:
    """Columns `first` … `first + count − 1` of an endless matrix, as a site with one fixed key knows them."""
    hasher = ColumnHasher(bytes(32))
    hasher.add(np.arange(first, first + count, dtype=np.float64)[None, :])
    return hasher.columns([], owners)

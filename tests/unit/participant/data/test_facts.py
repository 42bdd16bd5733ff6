"""What a participant's data must be, found in the scan before any review."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.secagg.column_sets import ColumnHasher
from participant.data.facts import DataFacts, measure


@pytest.mark.parametrize("size", [1e200, -1e200, 1e-200])
def test_a_file_whose_entries_cannot_be_squared_is_refused_by_name(size: float) -> None:
    with pytest.raises(BadInput, match=r"data\.npy has 1\.0e[+-]200 as its largest entry") as caught:
        measure(ArrayColumns(np.full((2, 3), size)), "data.npy")
    assert "another unit" in caught.value.hint


def test_zeros_and_small_entries_beside_larger_ones_are_accepted() -> None:
    M = np.array([[1.0, 0.0, np.nan], [1e-300, 2.0, 0.0]])
    assert measure(ArrayColumns(M), "data.npy") == DataFacts(rows=2, columns=3, missing=1, entries=(2, 3))


def test_entries_are_counted_by_feature_where_any_is_missing() -> None:
    M = np.array([[1.0, np.nan, np.nan, 4.0], [np.nan, np.nan, np.nan, np.nan], [1.0, np.nan, 3.0, np.nan]])
    facts = measure(ArrayColumns(M), "data.npy")
    assert facts.entries == (2, 0, 2)
    assert (facts.columns, facts.empty) == (3, (1,))
    assert measure(ArrayColumns(np.ones((2, 3))), "data.npy").entries == ()


def test_the_same_data_has_the_same_digest_and_any_other_entry_another() -> None:
    def digest(M: np.ndarray) -> bytes:
        hasher = ColumnHasher(bytes(32))
        measure(ArrayColumns(M), "data.npy", hasher)
        return hasher.columns([], ()).digest

    M = np.arange(6.0).reshape(2, 3)
    other = M.copy()
    other[1, 2] += 1e-12
    assert digest(M) == digest(np.asfortranarray(M))
    assert digest(M) != digest(other)
    assert digest(M) != digest(M.reshape(3, 2))

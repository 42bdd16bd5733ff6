from __future__ import annotations

import numpy as np

from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.refinement.hidden_entries import HiddenColumns


def test_hidden_entries_follow_the_content_of_a_column_not_its_place() -> None:
    M = np.random.default_rng(0).standard_normal((30, 40))
    shuffled = np.random.default_rng(1).permutation(40)
    one = HiddenColumns(ArrayColumns(M), 0.1, seed=3).hidden(0, 40)
    other = HiddenColumns(ArrayColumns(M[:, shuffled]), 0.1, seed=3).hidden(0, 40)
    np.testing.assert_array_equal(one[:, shuffled], other)
    assert not np.array_equal(one, HiddenColumns(ArrayColumns(M), 0.1, seed=4).hidden(0, 40))


def test_about_the_share_of_every_row_is_hidden_also_of_equal_columns() -> None:
    for M in (np.random.default_rng(0).standard_normal((20, 5000)), np.ones((20, 5000))):
        hidden = HiddenColumns(ArrayColumns(M), 0.03, seed=0).hidden(0, 5000)
        shares = hidden.mean(axis=1)
        assert ((shares > 0.015) & (shares < 0.045)).all()


def test_what_is_hidden_is_shown_when_hiding_ends() -> None:
    M = np.random.default_rng(0).standard_normal((10, 50))
    columns = HiddenColumns(ArrayColumns(M), 0.2, seed=0)
    assert np.isnan(columns.read(0, 50)).any()
    columns.hiding = False
    np.testing.assert_array_equal(columns.read(10, 20), M[:, 10:20])

"""What `check` says about features: each kind is recognised, and figures are those of the entries that are there."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.column_blocks import ArrayColumns
from participant.data.facts import profile_features
from participant.data.matrix import Matrix


def test_every_kind_is_recognised() -> None:
    rng = np.random.default_rng(0)
    rows = {
        "empty": np.full(100, np.nan),
        "constant": np.full(100, 3.0),
        "binary": np.arange(100) % 2,
        "codes": np.arange(100) % 4,
        "dominated": np.where(np.arange(100) < 90, 0, rng.standard_normal(100)),
        "numeric": rng.standard_normal(100),
    }
    matrix = Matrix(ArrayColumns(np.array(list(rows.values()), dtype=float)), tuple(rows))
    found = {one.name: one for one in profile_features(matrix)}
    assert {name: one.kind for name, one in found.items()} == {name: name for name in rows}
    assert [name for name, one in found.items() if not one.carries_low_rank] == ["empty", "constant", "dominated"]


def test_figures_are_of_the_entries_that_are_there() -> None:
    (one,) = profile_features(Matrix(ArrayColumns(np.array([[1.0, np.nan, 2.0, 9.0]]))))
    assert (one.missing_share, one.median, one.mad, one.least, one.greatest) == (0.25, 2.0, 1.0, 1.0, 9.0)

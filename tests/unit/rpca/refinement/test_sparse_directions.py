"""Directions that vanish at many places are found where there are any, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.refinement.sparse_directions import sparse_directions


@pytest.mark.parametrize(
    ("rows", "width", "share"), [(100, 4, 0.6), (60, 3, 0.5), (20, 3, 0.3), (150, 9, 0.3), (8, 1, 0.5)]
)
@pytest.mark.parametrize("alike", [True, False])
def test_the_places_of_a_direction_are_found(rows: int, width: int, share: float, alike: bool) -> None:
    rng = np.random.default_rng([rows, width])
    used = np.sort(rng.choice(rows, round(share * rows), replace=False))
    factors = rng.standard_normal((rows, width))
    factors[:, 0] = 0.0
    factors[used, 0] = 1.0 if alike else rng.standard_normal(used.size)
    basis = np.linalg.qr(factors @ rng.standard_normal((width, width)))[0]
    found = sparse_directions(basis, rows - used.size)
    assert [direction.places.tolist() for direction in found] == [used.tolist()]
    assert np.abs(np.delete(basis @ found[0].coefficients, used)).max() < 1e-9


@pytest.mark.parametrize(("rows", "width"), [(100, 4), (8, 2), (8, 6), (150, 40), (20, 0)])
def test_a_span_like_any_other_has_none(rows: int, width: int) -> None:
    basis = np.linalg.qr(np.random.default_rng(rows).standard_normal((rows, width)))[0]
    assert sparse_directions(basis, int(0.3 * rows)) == []

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.outlyingness import Outlyingness, directions, stand_still


@dataclass
class Standard:
    rows: int

    @property
    def median(self) -> FloatArray:
        return np.zeros(self.rows)

    @property
    def spread(self) -> FloatArray:
        return np.ones(self.rows)

    @property
    def few(self) -> NDArray[np.bool_]:
        return np.zeros(self.rows, dtype=bool)

    @property
    def one_value(self) -> FloatArray:
        return np.zeros(self.rows)


def calm(M: FloatArray) -> NDArray[np.bool_]:
    found, features = Outlyingness.unknown(), Standard(len(M))
    for _ in range(6):
        parts = [found.counts(found.places(part, features)) for part in np.array_split(M, 3, axis=1)]
        found = found.after(np.sum(parts, axis=0), still=True)
    return found.calm(M, features)


def noise(rows: int, columns: int) -> FloatArray:
    rng = np.random.default_rng(0)
    return 0.7 * rng.normal(size=(rows, columns)) + 0.7 * rng.normal(size=columns)


@pytest.mark.parametrize("rows", [3, 20, 300])
def test_nearly_all_normal_columns_take_part(rows: int) -> None:
    assert np.mean(calm(noise(rows, 500))) > 0.98


@pytest.mark.parametrize("rows", [5, 20, 300])
def test_a_fifth_of_columns_in_a_tight_cluster_takes_no_part(rows: int) -> None:
    M = noise(rows, 500)
    M[:, :100] = 3.0 * np.where(np.arange(rows) % 2, 1.0, -1.0)[:, None] + 0.1 * M[:, :100]
    assert not calm(M)[:100].any()
    assert calm(M)[100:].mean() > 0.8


def test_one_gross_entry_does_not_make_a_column_outlying() -> None:
    M = noise(20, 500)
    M[3, :200] = 1e6
    assert np.mean(calm(M)) > 0.95


def test_directions_are_of_unit_length_and_run_over_a_bounded_number_of_features() -> None:
    for rows in (2, 64, 1000):
        found = directions(rows).toarray()
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0)
        assert np.count_nonzero(found, axis=1).max() == min(rows, 64)


def test_medians_of_few_columns_may_move_further_than_those_of_many() -> None:
    moves = (np.full(10, 0.4), np.full(10, 0.4))
    assert stand_still(moves, 0.3, 40.0)
    assert not stand_still(moves, 0.3, 4000.0)
    assert not stand_still((np.full(10, 0.6),), 0.3, 40.0)

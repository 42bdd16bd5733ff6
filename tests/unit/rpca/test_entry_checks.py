"""What is let in at the data door."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns, check_entries
from dcfpca.rpca.simulate import simulate
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver


def test_infinity_is_refused_with_its_place() -> None:
    M = np.ones((3, 4))
    M[1, 2] = -np.inf
    with pytest.raises(BadInput, match="row 1, column 2") as caught:
        check_entries(ArrayColumns(M))
    assert "NaN" in caught.value.hint


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_sizes_that_cannot_be_squared_are_refused(size: float) -> None:
    with pytest.raises(BadInput, match="outside"):
        check_entries(ArrayColumns(np.full((2, 2), size)))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_an_empty_matrix_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(BadInput, match="nothing in it"):
        check_entries(ArrayColumns(np.zeros(shape)))


def test_gaps_zeros_and_plain_numbers_are_welcome() -> None:
    for M in (np.full((2, 2), np.nan), np.zeros((2, 2)), np.array([[1.0, np.nan], [0.0, -3.0]])):
        check_entries(ArrayColumns(M))


def test_simulate_refuses_magnitudes_under_which_the_rank_would_vanish() -> None:
    rng = np.random.default_rng(0)
    M = 1e160 * rng.standard_normal((20, 2)) @ rng.standard_normal((2, 30))
    with pytest.raises(BadInput, match="as its largest entry") as caught:
        simulate(subspace_method(SubspaceSolver(20, 2, 30, 1e-9)), [ArrayColumns(M)])
    assert "another unit" in caught.value.hint

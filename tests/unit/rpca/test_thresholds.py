"""Shrinkage functions against their definition as minimizers."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.subspace.rank_rules import firm_weights
from dcfpca.rpca.thresholds import firm, influence, soft

GRID = np.linspace(-6.0, 6.0, 20001)


def mcp(s: np.ndarray, threshold: float, a: float) -> np.ndarray:
    size = np.abs(s)
    return np.where(size <= a * threshold, threshold * size - size**2 / (2 * a), a * threshold**2 / 2)


@pytest.mark.parametrize("x", [-5.0, -2.5, -1.2, -0.3, 0.0, 0.9, 1.7, 3.1])
def test_firm_minimizes_the_minimax_concave_penalty(x: float) -> None:
    threshold, a = 1.0, 2.5
    found = float(firm(np.array([x]), threshold, a)[0])
    best = GRID[np.argmin(0.5 * (GRID - x) ** 2 + mcp(GRID, threshold, a))]
    assert abs(found - best) <= 1e-3


@pytest.mark.parametrize("x", [-5.0, -1.2, 0.0, 0.9, 3.1])
def test_soft_minimizes_the_absolute_penalty(x: float) -> None:
    best = GRID[np.argmin(0.5 * (GRID - x) ** 2 + 0.7 * np.abs(GRID))]
    assert abs(float(soft(np.array([x]), 0.7)[0]) - best) <= 1e-3


def test_the_influence_is_bounded_and_that_of_gross_outliers_is_zero() -> None:
    influences = influence(GRID, 1.0, 2.0)
    assert np.abs(influences).max() <= 1.0
    assert not influences[np.abs(GRID) >= 2.0].any()
    np.testing.assert_array_equal(influences[np.abs(GRID) <= 1.0], GRID[np.abs(GRID) <= 1.0])


def test_singular_value_weights_rise_from_zero_to_one() -> None:
    weights = firm_weights(np.array([5.0, 2.0, 1.5, 1.0, 0.1, 0.0]), 1.0, 2.0)
    np.testing.assert_allclose(weights, [1.0, 1.0, 2 / 3, 0.0, 0.0, 0.0])

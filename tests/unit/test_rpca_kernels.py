"""The compiled loops against their numpy twins, and the counts that stand in for medians."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.fused import fused
from dcfpca.rpca.kernels import count_reference, exponent_histogram, histogram_median, sweep_reference

SIZES = np.random.default_rng(0).standard_normal((40, 30))
compiled = pytest.mark.skipif(fused() is None, reason="numba is not installed")


def matrix(dtype: type) -> tuple[np.ndarray, np.ndarray]:
    M = (3.0 * SIZES).astype(dtype)
    M[3, 4], M[0, 0] = np.nan, 1e30
    return M, np.roll(SIZES, 1, axis=0).astype(dtype)


@compiled
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("keep", [0.0, 1.0])
def test_the_compiled_sweep_agrees_with_numpy(dtype: type, keep: float) -> None:
    M, L = matrix(dtype)
    expected, found = L.copy(), L.copy()
    sweep_reference(M, expected, 1.3, 2.0, keep, 1.1)
    compiled_loops = fused()
    assert compiled_loops is not None
    compiled_loops.sweep(M, found, 1.3, 2.0, keep, 1.1)
    np.testing.assert_allclose(found, expected, rtol=10 * np.finfo(dtype).eps, atol=10 * np.finfo(dtype).eps)
    assert found[3, 4] == keep * L[3, 4]
    assert found[0, 0] == keep * L[0, 0]


@compiled
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_compiled_counts_agree_with_numpy(dtype: type) -> None:
    M, L = matrix(dtype)
    rows = np.array([0, 3, 5, 17, 39])
    expected, found = np.zeros(20), np.zeros(20)
    reference = count_reference(M, L, rows, 1.3, 2.0, 0.9, -14, expected)
    compiled_loops = fused()
    assert compiled_loops is not None
    np.testing.assert_allclose(compiled_loops.count(M, L, rows, 1.3, 2.0, 0.9, -14, found), reference, rtol=1e-5)
    np.testing.assert_array_equal(found, expected)


def test_counts_add_up_over_any_split_and_give_the_median() -> None:
    sizes = np.abs(SIZES.ravel())
    whole = exponent_histogram(sizes, 1.0, -14, 20)
    parts = sum(exponent_histogram(part, 1.0, -14, 20) for part in np.split(sizes, [1, 7, 500]))
    np.testing.assert_array_equal(whole, parts)
    assert histogram_median(whole, 1.0, -14) == pytest.approx(float(np.median(sizes)), rel=0.05)


def test_zeros_do_not_count_and_nothing_has_no_scale() -> None:
    assert histogram_median(exponent_histogram(np.zeros(9), 1.0, -14, 20), 1.0, -14) == 0.0

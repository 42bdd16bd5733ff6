"""The compiled loops against their numpy twins, and the counts that stand in for medians."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

from dcfpca.rpca.column_blocks import row_strided_view
from dcfpca.rpca.kernels import numpy_loops, step_parameters
from dcfpca.rpca.kernels.block_step import StepSums, block_step
from dcfpca.rpca.kernels.compiled_loops import Loops, active_loops, compiled_loops, loops_in_numpy
from dcfpca.rpca.kernels.numpy_loops import exponent_histogram, histogram_quantile
from dcfpca.rpca.kernels.step_parameters import Coefficients, EnteringDirections, ScratchBuffers, StepPlan
from dcfpca.rpca.thresholds import firm

SIZES = np.random.default_rng(0).standard_normal((40, 30))
needs_compiler = pytest.mark.skipif(compiled_loops() is None, reason="numba is not installed")
Precision = type[np.float64] | type[np.float32]
precisions = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def loops() -> Loops:
    there = compiled_loops()
    assert there is not None
    return there


def eps(dtype: Precision) -> float:
    return float(np.finfo(dtype).eps)


def matrix(dtype: Precision) -> tuple[np.ndarray, np.ndarray]:
    M = (3.0 * SIZES).astype(dtype)
    M[3, 4], M[0, 0] = np.nan, 1e30
    return M, np.roll(SIZES, 1, axis=0).astype(dtype)


def test_the_compiled_loops_are_used_where_they_can_be() -> None:
    assert active_loops() == (compiled_loops() or loops_in_numpy())


@needs_compiler
@precisions
@pytest.mark.parametrize("keep", [0.0, 1.0])
def test_the_compiled_sweep_agrees_with_numpy(dtype: Precision, keep: float) -> None:
    M, L = matrix(dtype)
    expected, found = L.copy(), L.copy()
    numpy_loops.sweep(M, expected, 1.3, 2.0, keep, 1.1)
    loops().sweep(M, found, 1.3, 2.0, keep, 1.1)
    np.testing.assert_allclose(found, expected, rtol=10 * eps(dtype), atol=10 * eps(dtype))
    assert found[3, 4] == keep * L[3, 4]
    assert found[0, 0] == keep * L[0, 0]


@needs_compiler
@precisions
def test_the_compiled_counts_agree_with_numpy(dtype: Precision) -> None:
    M, L = matrix(dtype)
    rows = np.array([0, 3, 5, 17, 39])
    expected, found = np.zeros(20), np.zeros(20)
    counted = numpy_loops.count(M, L, rows, 1.3, 2.0, 0.9, -14, expected)
    np.testing.assert_allclose(loops().count(M, L, rows, 1.3, 2.0, 0.9, -14, found), counted, rtol=1e-5)
    np.testing.assert_array_equal(found, expected)


@needs_compiler
@precisions
@pytest.mark.parametrize("shape", [(7, 1), (40, 16), (41, 30), (10, 300), (12, 560)])
def test_the_walk_over_few_directions_agrees_with_numpy(shape: tuple[int, int], dtype: Precision) -> None:
    (rows, columns), rng = shape, np.random.default_rng(2)
    M = (3.0 * rng.standard_normal((rows, columns + 3))).astype(dtype)
    M[3, 0], M[2, 0] = np.nan, 1e30
    U, shrunk = rng.standard_normal((rows, 3)).astype(dtype), rng.standard_normal((columns, 3)).astype(dtype)
    lined = -(-columns // 16) * 16
    found, expected = np.zeros((rows + rows % 2, lined), dtype), np.zeros((rows, columns), dtype)
    gained, again, known = (np.zeros((columns, 3), dtype) for _ in range(3))
    numpy_loops.influence_pass(M, U, shrunk, 1.3, 2.0, expected, known, (0,) * 3)
    loops().influence_pass(M, U, shrunk, 1.3, 2.0, found, gained, (0,) * 3)
    loops().influence_pass(M, U, shrunk, 1.3, 2.0, np.zeros((2, lined), dtype), again, (0,) * 3)
    np.testing.assert_allclose(found[:rows, :columns], expected, rtol=0.0, atol=100 * eps(dtype))
    np.testing.assert_allclose(gained, known, rtol=0.0, atol=1000 * eps(dtype))
    np.testing.assert_array_equal(again, gained)
    assert not found[2:4, 0].any()


@pytest.mark.parametrize("form", [pytest.param(compiled_loops, marks=needs_compiler), loops_in_numpy])
@precisions
def test_the_thin_product_is_a_product(form: Callable[[], Loops], dtype: Precision) -> None:
    influences, right, product = SIZES.astype(dtype), SIZES[:5].astype(dtype), np.empty((40, 5), dtype)
    form().thin_product(influences, right, product, (0,) * 5)
    np.testing.assert_allclose(product, SIZES @ SIZES[:5].T, rtol=0.0, atol=100 * eps(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("entering", [(1.0, 0.5, 0.9), (0.7, 0.0, 0.0), (0.0, 0.0, 0.0)])
def test_thin_passes_give_what_matrix_products_give(
    entering: tuple[float, ...], dtype: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    M = 2.0 * rng.standard_normal((33, 50))
    M[4, 5], M[6, 7] = np.nan, 1e9
    U = np.linalg.qr(rng.standard_normal((33, 3)))[0].astype(dtype)
    begins = rng.standard_normal((37, int(np.count_nonzero(entering)))).astype(dtype)

    def stepped() -> list[np.ndarray]:
        plan = StepPlan(
            U=U, scales=np.array([2.0, 1.0, 0.5]), threshold=1.3, a=2.0, relaxation=1.2, step=1.1, noise=0.9, passes=3,
            sample=np.array([1, 4, 30]), entering=EnteringDirections.of(U, np.array(entering)),
        )  # fmt: skip
        fit, sums = Coefficients(np.empty((37, 3)), np.zeros((37, 3))), StepSums(np.zeros((33, 3)), np.zeros(20))
        block_step(M[:, 3:40], begins, fit, plan, sums, ScratchBuffers.of(33 * 37, plan), None, 0)
        return [fit.V, fit.L, sums.tensor, sums.histogram, np.array([sums.influence, sums.kept, sums.sampled])]

    thin = stepped()
    monkeypatch.setattr(step_parameters, "THIN_WIDTH", 0)
    for found, expected in zip(thin, stepped(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3 if dtype == np.float32 else 1e-12, atol=1e3 * eps(dtype))


@pytest.mark.parametrize("form", [pytest.param(compiled_loops, marks=needs_compiler), loops_in_numpy])
def test_the_outliers_are_gathered_column_by_column(form: Callable[[], Loops]) -> None:
    M, L = matrix(np.float64)
    ends, rows, values, missing, squares = form().outliers(M, L, 1.3, 2.0)
    R = np.nan_to_num(M - L)
    S = firm(R, 1.3, 2.0)
    found = sparse.csc_array((values, rows, ends), shape=M.shape)
    np.testing.assert_allclose(found.toarray(), S, rtol=1e-12)
    assert found.has_canonical_format
    assert missing == 1
    assert squares == pytest.approx(float(np.sum((R - S) ** 2)))


def test_counts_add_up_over_any_split_and_give_the_median() -> None:
    sizes = np.abs(SIZES.ravel())
    whole = exponent_histogram(sizes, 1.0, -14, 20)
    parts = sum(exponent_histogram(part, 1.0, -14, 20) for part in np.split(sizes, [1, 7, 500]))
    np.testing.assert_array_equal(whole, parts)
    assert histogram_quantile(0.5, whole, 1.0, -14) == pytest.approx(float(np.median(sizes)), rel=0.05)


def test_zeros_do_not_count_and_nothing_has_no_scale() -> None:
    assert histogram_quantile(0.5, exponent_histogram(np.zeros(9), 1.0, -14, 20), 1.0, -14) == 0.0


def test_a_block_is_read_where_it_lies_if_its_rows_are_contiguous() -> None:
    M = np.arange(24.0).reshape(4, 6)
    there = row_strided_view(M[:, 2:5])
    assert there is not None
    assert there.flags.c_contiguous
    assert np.shares_memory(there[:, :3], M)
    np.testing.assert_array_equal(there[:, :3], M[:, 2:5])
    assert row_strided_view(np.asfortranarray(M)) is None
    assert row_strided_view(M[:, ::2]) is None
    assert row_strided_view(M[::-1]) is None


@pytest.mark.parametrize("form", [pytest.param(compiled_loops, marks=needs_compiler), loops_in_numpy])
def test_what_lies_beyond_the_columns_of_the_block_is_not_looked_at(form: Callable[[], Loops]) -> None:
    M, L = matrix(np.float64)
    wide = np.concatenate([M, np.full((40, 9), 1e9)], axis=1)

    def told(data: np.ndarray) -> list[np.ndarray]:
        swept, histogram = L.copy(), np.zeros(20)
        form().sweep(data, swept, 1.3, 2.0, 1.0, 1.1)
        sums = form().count(data, L, np.arange(40), 1.3, 2.0, 0.9, -14, histogram)
        ends, rows, values, *left = form().outliers(data, L, 1.3, 2.0)
        return [swept, histogram, ends, rows, values, np.array([*sums, *left])]

    for narrow, found in zip(told(M), told(wide), strict=True):
        np.testing.assert_array_equal(found, narrow)

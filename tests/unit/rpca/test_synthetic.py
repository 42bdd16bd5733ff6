from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import ArrayColumns, blocks, equal_counts, split
from dcfpca.rpca.synthetic import (
    Outliers,
    Recipe,
    generate,
    paper_error,
    paper_problem,
    relative_error,
    relative_squared_error,
    singular_value_error,
)


def _recipe(**changes: object) -> Recipe:
    return Recipe(**({"rows": 60, "columns": 80, "rank": 4, "sparsity": 0.1} | changes))  # type: ignore[arg-type]


def test_the_truth_has_the_declared_rank_and_share_of_outliers() -> None:
    problem = generate(_recipe(), seed=1)
    assert np.linalg.matrix_rank(problem.L) == 4
    assert np.count_nonzero(problem.S) == 480
    np.testing.assert_array_equal(problem.M, problem.L + problem.S)


def test_the_same_seed_gives_the_same_problem_and_another_seed_another() -> None:
    first, again, other = (generate(_recipe(), seed=seed) for seed in (1, np.random.default_rng(1), 2))
    np.testing.assert_array_equal(first.M, again.M)
    assert not np.array_equal(first.M, other.M)


@pytest.mark.parametrize("kind", list(Outliers))
def test_each_kind_of_outlier_keeps_its_promise(kind: Outliers) -> None:
    problem = generate(_recipe(outliers=kind), seed=3)
    values = problem.S[problem.S != 0]
    scale = np.sqrt(60 * 80)
    match kind:
        case Outliers.IMPULSE | Outliers.BLOCK:
            np.testing.assert_allclose(np.abs(values), scale)
        case Outliers.UNIFORM:
            assert np.abs(values).max() <= scale
            assert (values < 0).any()
        case Outliers.GAUSSIAN:
            assert 0.8 * scale < values.std() < 1.2 * scale
        case Outliers.SMALL:
            assert 0.8 < values.std() / problem.L.std() < 1.2
        case Outliers.ONE_SIDED:
            assert values.min() > 0


def test_a_block_of_outliers_is_one_filled_rectangle() -> None:
    rows, columns = np.nonzero(generate(_recipe(outliers=Outliers.BLOCK), seed=4).S)
    assert rows.size == (np.ptp(rows) + 1) * (np.ptp(columns) + 1)
    assert rows.size == pytest.approx(480, rel=0.05)


def test_noise_and_missing_entries_leave_the_truth_alone() -> None:
    plain, spoiled = generate(_recipe(), seed=5), generate(_recipe(noise=0.01, missing=0.2), seed=5)
    np.testing.assert_array_equal(plain.L, spoiled.L)
    observed = ~np.isnan(spoiled.M)
    assert observed.mean() == pytest.approx(0.8)
    noise = (spoiled.M - spoiled.L - spoiled.S)[observed]
    assert noise.std() == pytest.approx(0.01 * plain.L.std(), rel=0.1)


def test_the_condition_number_spreads_the_singular_values() -> None:
    values = np.linalg.svd(generate(_recipe(condition=100.0), seed=6).L, compute_uv=False)
    assert 50 < values[0] / values[3] < 200


def test_a_site_that_sees_a_third_of_the_factors_has_a_third_of_the_rank() -> None:
    problem = generate(_recipe(rank=6, sparsity=0, counts=(20, 30, 30), third=True), seed=7)
    assert [np.linalg.matrix_rank(own.array) for own in problem.sites()] == [2, 2, 2]
    assert np.linalg.matrix_rank(problem.L) == 6


def test_sites_together_hold_every_column_once() -> None:
    problem = generate(_recipe(counts=(1, 9, 70)), seed=8)
    assert [own.shape for own in problem.sites()] == [(60, 1), (60, 9), (60, 70)]
    np.testing.assert_array_equal(np.hstack([own.array for own in problem.sites()]), problem.M)


def test_the_paper_problem_is_square_and_dealt_out_evenly() -> None:
    assert [own.shape[1] for own in paper_problem(20, 1, 0.05, 3, seed=0).sites()] == [7, 7, 6]


@pytest.mark.parametrize(
    "changes",
    [{"rank": 0}, {"rank": 61}, {"sparsity": 1.0}, {"missing": -0.1}, {"condition": 0.5}, {"counts": (1, 2)}],
)
def test_an_impossible_recipe_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        _recipe(**changes)


def test_blocks_cover_the_columns_once_and_respect_the_size() -> None:
    ranges = blocks(ArrayColumns(np.zeros((10, 25))), block_bytes=8 * 10 * 4)
    assert [stop - start for start, stop in ranges] == [4, 4, 4, 4, 4, 4, 1]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == 25


def test_a_column_larger_than_a_block_is_still_read_whole() -> None:
    assert blocks(ArrayColumns(np.zeros((10, 2))), block_bytes=8) == [(0, 1), (1, 2)]


def test_other_dtypes_are_read_as_float64() -> None:
    read = ArrayColumns(np.arange(6, dtype=np.int32).reshape(2, 3)).read(1, 3)
    assert read.dtype == np.float64
    np.testing.assert_array_equal(read, [[1, 2], [4, 5]])


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros((2, 2), dtype=complex), np.array([["a"]])])
def test_what_is_not_a_real_matrix_is_refused(array: np.ndarray) -> None:
    with pytest.raises(BadInput):
        ArrayColumns(array)


def test_columns_that_cannot_be_dealt_out_are_refused() -> None:
    with pytest.raises(BadInput):
        split(np.zeros((2, 3)), (1, 1))
    with pytest.raises(BadInput):
        equal_counts(3, 4)


def test_the_truth_has_no_error_and_zero_has_error_one() -> None:
    L0, S0 = np.ones((3, 2)), np.eye(3, 2)
    assert paper_error(L0, S0, L0, S0) == 0
    assert paper_error(0 * L0, 0 * S0, L0, S0) == 1
    assert relative_error(1.1 * L0, L0) == pytest.approx(0.1)
    assert relative_squared_error(1.1 * L0, L0) == pytest.approx(0.01)


def test_a_sparse_matrix_counts_as_the_dense_one() -> None:
    rng = np.random.default_rng(0)
    L, S, L0, S0 = rng.standard_normal((4, 5, 6))
    assert paper_error(L, sparse.csc_array(S), L0, S0) == paper_error(L, S, L0, S0)


def test_superfluous_singular_values_count_as_error() -> None:
    truth = np.array([3.0, 2.0, 0.0])
    assert singular_value_error(np.array([3.0, 2.0]), truth, 2) == 0
    assert singular_value_error(np.array([3.0, 2.0, 0.0, 1.0]), truth, 2) == 0.5

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dcfpca.rpca import metrics


def test_the_truth_has_no_error_and_zero_has_error_one() -> None:
    L0, S0 = np.ones((3, 2)), np.eye(3, 2)
    assert metrics.paper_error(L0, S0, L0, S0) == 0
    assert metrics.paper_error(0 * L0, 0 * S0, L0, S0) == 1
    assert metrics.relative_error(1.1 * L0, L0) == pytest.approx(0.1)
    assert metrics.relative_squared_error(1.1 * L0, L0) == pytest.approx(0.01)


def test_a_sparse_matrix_counts_as_the_dense_one() -> None:
    rng = np.random.default_rng(0)
    L, S, L0, S0 = rng.standard_normal((4, 5, 6))
    assert metrics.paper_error(L, sparse.csc_array(S), L0, S0) == metrics.paper_error(L, S, L0, S0)


def test_superfluous_singular_values_count_as_error() -> None:
    truth = np.array([3.0, 2.0, 0.0])
    assert metrics.singular_value_error(np.array([3.0, 2.0]), truth, 2) == 0
    assert metrics.singular_value_error(np.array([3.0, 2.0, 0.0, 1.0]), truth, 2) == 0.5

"""New columns on a known subspace: what is normal is found exactly, whatever a minority of entries says."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.robust_projection import most_agreeing, project


def problem(
    rows: int, rank: int, columns: int, missing: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Q, true coefficients, gross errors, and M."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((rows, rank)))[0]
    V = rng.standard_normal((columns, rank))
    S = np.where(rng.random((rows, columns)) < 0.1, 50.0, 0.0)
    M = Q @ V.T + S
    M[rng.random(M.shape) < missing] = np.nan
    return Q, V, S, M


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_coefficients_and_errors_are_exact_where_there_is_no_noise(missing: float) -> None:
    Q, V, S, M = problem(200, 5, 30, missing)
    found = project(Q, M)
    np.testing.assert_allclose(found.coefficients, V, atol=1e-10)
    np.testing.assert_allclose(found.outliers, np.where(np.isnan(M), 0.0, S), atol=1e-9)


def test_a_column_is_projected_the_same_alone_and_among_others() -> None:
    Q, _, _, M = problem(200, 5, 30, 0.1)
    together = project(Q, M).coefficients
    for column in range(5):
        alone = project(Q, M[:, column : column + 1]).coefficients[0]
        np.testing.assert_allclose(together[column], alone, atol=1e-10)


def test_columns_with_hardly_an_entry_do_no_harm_to_the_others() -> None:
    Q, V, _, M = problem(200, 5, 4, 0.0)
    M[2:, 0] = np.nan
    M[:, 1] = 0.0
    found = project(Q, M)
    assert np.isfinite(found.coefficients).all()
    np.testing.assert_array_equal(found.coefficients[1], np.zeros(5))
    np.testing.assert_allclose(found.coefficients[2:], V[2:], atol=1e-10)


def test_coefficients_are_those_with_which_most_entries_agree_where_most_are_gross() -> None:
    rng = np.random.default_rng(9)
    Q = np.linalg.qr(rng.standard_normal((8, 2)))[0]
    V = rng.standard_normal((30, 2))
    M = Q @ V.T
    for column in M.T:
        column[rng.choice(8, 4, replace=False)] = rng.uniform(-20.0, 20.0, 4)
    start = project(Q, M).coefficients
    found = most_agreeing(Q, M, 1e-9, start)
    assert np.abs(start - V).max() > 0.1
    assert found == pytest.approx(V, abs=1e-9)
    alone = np.where(np.arange(8) < 3, M[:, 0], np.nan)[:, None]
    assert most_agreeing(Q, alone, 1e-9, start[:1]) == pytest.approx(start[:1])  # three entries do not tell

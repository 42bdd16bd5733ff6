"""Errors of a result against a known truth."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from dcfpca.rpca.method import FloatArray

Matrix = FloatArray | sparse.csc_array


def paper_error(L: FloatArray, S: Matrix, L0: FloatArray, S0: FloatArray) -> float:
    """(‖L−L₀‖² + ‖S−S₀‖²)/(‖L₀‖² + ‖S₀‖²), the paper's err. S₀ dominates it: report `relative_error` of L beside it."""
    dense_S = S.toarray() if isinstance(S, sparse.csc_array) else S
    return (_squared(L - L0) + _squared(dense_S - S0)) / (_squared(L0) + _squared(S0))


def relative_error(L: FloatArray, L0: FloatArray) -> float:
    """‖L−L₀‖/‖L₀‖, Frobenius."""
    return float(np.sqrt(relative_squared_error(L, L0)))


def relative_squared_error(L: FloatArray, L0: FloatArray) -> float:
    """‖L−L₀‖²/‖L₀‖², Frobenius."""
    return _squared(L - L0) / _squared(L0)


def singular_value_error(found: FloatArray, truth: FloatArray, rank: int) -> float:
    """max|σ_i − σ_i(L₀)|/σ_r(L₀) over all i, the shorter list padded with zeros."""
    length = max(found.size, truth.size)
    difference = np.pad(found, (0, length - found.size)) - np.pad(truth, (0, length - truth.size))
    return float(np.abs(difference).max() / truth[rank - 1])


def _squared(matrix: FloatArray) -> float:
    flat = matrix.ravel()
    return float(flat @ flat)

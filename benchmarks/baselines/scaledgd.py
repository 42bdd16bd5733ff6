"""Scaled gradient descent (Tong, Ma, Chi 2021, JMLR 22:150), for robust PCA of known rank and known share of outliers.

L = A Bᵀ. Each factor takes a gradient step preconditioned by the inverse Gram matrix of the other, so that the pace
does not depend on the condition number; S keeps the entries that are among the largest of their row and column.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from benchmarks.baselines.result import BaselineResult, Ending, Observe, complete_matrix, fitting_rank
from benchmarks.baselines.spectrum import leading
from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray


def scaled_gradient_descent(
    M: FloatArray,
    rank: int,
    *,
    sparsity: float = 0.1,
    step: float = 0.5,
    tolerance: float = 1e-7,
    iterations: int = 500,
    observe: Observe | None = None,
) -> BaselineResult:
    """Robust PCA. `sparsity` bounds the outliers' share in any row or column (the paper's α); `step` is its η."""
    M = complete_matrix(M)
    fitting_rank(rank, M)
    if not 0.0 < sparsity <= 0.5:
        raise BadInput(f"The share of outliers is {sparsity}, not in (0, 0.5].")
    norm, low = float(np.linalg.norm(M)), leading(_kept_out(M.copy(), 2 * sparsity), rank, np.random.default_rng(0))
    A, B = low.U * np.sqrt(low.values), low.V * np.sqrt(low.values)
    R = _kept_out(M - A @ B.T, 2 * sparsity)
    number, residual = 0, float(np.linalg.norm(R))
    while number < iterations and residual > tolerance * norm:
        number += 1
        A, B = A + step * _unscaled(R @ B, B), B + step * _unscaled(R.T @ A, A)
        R = _kept_out(M - A @ B.T, 2 * sparsity)
        residual = float(np.linalg.norm(R))
        if observe is not None:
            observe(number, A @ B.T, M - A @ B.T - R)
    L = A @ B.T
    ending = Ending.CONVERGED if residual <= tolerance * norm else Ending.OUT_OF_ITERATIONS
    return BaselineResult(L, M - L - R, rank, number, residual / norm if norm else 0.0, ending)


def _unscaled(gradient: FloatArray, other: FloatArray) -> FloatArray:
    """gradient (otherᵀ other)⁻¹; a little of the largest is added where the factor has lost rank."""
    gram = other.T @ other
    gram.flat[:: gram.shape[0] + 1] += 1e-14 * max(float(np.trace(gram)), np.finfo(float).tiny)
    return np.asarray(cho_solve(cho_factor(gram, check_finite=False), gradient.T, check_finite=False).T)


def _kept_out(R: FloatArray, share: float) -> FloatArray:
    """R, in place, without what is among the largest `share` of its row and of its column: R − T(R) of the paper."""
    sizes = np.abs(R)
    rows, columns = R.shape
    in_row = np.partition(sizes, columns - max(1, round(share * columns)), axis=1)
    bar_row = in_row[:, columns - max(1, round(share * columns))]
    in_column = np.partition(np.ascontiguousarray(sizes.T), rows - max(1, round(share * rows)), axis=1)
    bar_column = in_column[:, rows - max(1, round(share * rows))]
    sparse = (sizes >= bar_row[:, None]) & (sizes >= bar_column)
    R[sparse] = 0.0
    return R

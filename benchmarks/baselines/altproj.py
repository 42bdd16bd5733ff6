"""Accelerated alternating projections (Cai, Cai, Wei 2019, JMLR 20:20). The rank must be given.

L is projected onto rank r through the tangent space of the last L, which needs a singular value decomposition of only
2r × 2r; S by hard thresholding at a level that falls geometrically.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import qr, svd

from benchmarks.baselines.elementwise_kernels import sweeps
from benchmarks.baselines.result import BaselineResult, Ending, Observe, complete_matrix, fitting_rank
from benchmarks.baselines.spectrum import Factors, by_rows, largest_value, leading
from dcfpca.rpca.method import FloatArray


def accelerated_alternating_projections(
    M: FloatArray,
    rank: int,
    *,
    decay: float = 0.5,
    incoherence: float = 1.0,
    tolerance: float = 1e-7,
    iterations: int = 200,
    observe: Observe | None = None,
) -> BaselineResult:
    """Robust PCA of known rank. `decay` is the paper's γ: smaller is faster, larger solves harder problems.

    `incoherence` is the paper's μ (1 is a perfectly spread L), which sets β = 1.1 μr/(2√(mn)).
    """
    M = complete_matrix(M)
    fitting_rank(rank, M)
    rng = np.random.default_rng(0)
    norm = float(np.linalg.norm(M))
    beta = 1.1 * incoherence * rank / (2.0 * np.sqrt(M.size))
    # The published first threshold follows ‖M‖₂, which gross outliers inflate; a robust deviation does not let them.
    first = 4.0 * 1.4826 * float(np.median(np.abs(M))) or 4.0 * beta * largest_value(M, rng)
    cleaned = np.where(np.abs(M) > first, 0.0, M)
    low = leading(cleaned, rank, rng, steps=2)
    threshold = beta * float(low.values[0])
    residual, number = _clean(M, low, threshold, cleaned), 0
    while number < iterations and residual > tolerance * norm:
        number += 1
        low, following = _tangent_projection(cleaned, low)
        threshold = beta * (following + decay**number * float(low.values[0]))
        residual = _clean(M, low, threshold, cleaned)
        if observe is not None:
            observe(number, low.dense(), M - cleaned)
    ending = Ending.CONVERGED if residual <= tolerance * norm else Ending.OUT_OF_ITERATIONS
    return BaselineResult(low.dense(), M - cleaned, rank, number, residual / norm if norm else 0.0, ending)


def _clean(M: FloatArray, low: Factors, threshold: float, cleaned: FloatArray) -> float:
    """cleaned ← M − S with S = hard(M − L, threshold), which is L where S takes over; returns ‖M − L − S‖."""
    scaled, right, squared, clean = low.U * low.values, low.V.T, 0.0, sweeps().clean

    def sweep(rows: slice) -> None:
        nonlocal squared
        squared += clean(M[rows], scaled[rows] @ right, threshold, cleaned[rows])

    by_rows(M.shape, sweep)
    return float(np.sqrt(squared))


def _tangent_projection(Z: FloatArray, low: Factors) -> tuple[Factors, float]:
    """The best rank r approximation of Z projected onto the tangent space at `low`, and the next singular value."""
    U, V, rank = low.U, low.V, low.values.size
    ZV, ZU = Z @ V, Z.T @ U
    core = U.T @ ZV
    left, down = qr(ZV - U @ core, mode="economic", check_finite=False)
    right, across = qr(ZU - V @ core.T, mode="economic", check_finite=False)
    middle = np.block([[core, across.T], [down, np.zeros((down.shape[0], across.shape[0]))]])
    u, values, vt = svd(middle, check_finite=False)
    new_U = np.concatenate([U, left], axis=1) @ u[:, :rank]
    new_V = np.concatenate([V, right], axis=1) @ vt[:rank].T
    following = float(values[rank]) if values.size > rank else 0.0
    return Factors(new_U, values[:rank], new_V), following

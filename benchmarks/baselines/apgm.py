"""Accelerated proximal gradient for robust PCA with continuation (Lin, Ganesh, Wright, Wu, Chen, Ma 2009).

    min μ‖L‖_* + μλ‖S‖₁ + ½‖M − L − S‖²,   λ = 1/√max(m, n),   μ falling to a small target

Both blocks take a proximal step from points extrapolated by Nesterov's rule; the step is ½ because the quadratic term
is 2-smooth in (L, S) together.
"""

from __future__ import annotations

import numpy as np

from benchmarks.baselines.result import BaselineResult, Ending, Observe, complete_matrix
from benchmarks.baselines.spectrum import Thresholding, largest_value
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.thresholds import soft


def apgm(
    M: FloatArray,
    *,
    partial: bool = True,
    decay: float = 0.9,
    target: float = 1e-9,
    tolerance: float = 1e-7,
    iterations: int = 500,
    observe: Observe | None = None,
) -> BaselineResult:
    """Robust PCA by APGM; μ falls by `decay` per iteration from ‖M‖₂ to `target` times it."""
    M = complete_matrix(M)
    rng = np.random.default_rng(0)
    shrink = Thresholding(partial, rng)
    lambda_, norm = 1.0 / np.sqrt(max(M.shape)), float(np.linalg.norm(M))
    mu = 0.99 * largest_value(M, rng)
    lowest = target * mu
    L, S, ahead_L, ahead_S = (np.zeros_like(M) for _ in range(4))
    momentum, number, rank, change = 1.0, 0, 0, norm
    while number < iterations and change > tolerance * norm:
        number += 1
        half = 0.5 * (M - ahead_L - ahead_S)
        low = shrink(ahead_L + half, 0.5 * mu)
        next_L, next_S, rank = low.dense(), soft(ahead_S + half, 0.5 * lambda_ * mu), low.values.size
        # The distance of zero from the subdifferential at the new point, the stopping rule of the paper.
        common = next_L + next_S - ahead_L - ahead_S
        change = float(
            np.hypot(np.linalg.norm(2 * (ahead_L - next_L) + common), np.linalg.norm(2 * (ahead_S - next_S) + common))
        )
        grown = 0.5 + np.sqrt(0.25 + momentum**2)
        ahead_L = next_L + (momentum - 1.0) / grown * (next_L - L)
        ahead_S = next_S + (momentum - 1.0) / grown * (next_S - S)
        L, S, momentum, mu = next_L, next_S, grown, max(decay * mu, lowest)
        if observe is not None:
            observe(number, L, S)
    residual = float(np.linalg.norm(M - L - S)) / norm if norm else 0.0
    ending = Ending.CONVERGED if change <= tolerance * norm else Ending.OUT_OF_ITERATIONS
    return BaselineResult(L, S, rank, number, residual, ending)

"""Inexact augmented Lagrangian method for principal component pursuit (Lin, Chen, Ma 2010, arXiv 1009.5055).

    min ‖L‖_* + λ‖S‖₁   subject to   L + S = M,   λ = 1/√max(m, n)

L by soft thresholding of singular values at 1/μ, S by soft thresholding of entries at λ/μ, Y the multiplier, μ growing.
The rank is not given; it comes out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.baselines.elementwise_kernels import sweeps
from benchmarks.baselines.result import BaselineResult, Ending, Observe, complete_matrix
from benchmarks.baselines.spectrum import Factors, Thresholding, by_rows, largest_value
from dcfpca.rpca.method import FloatArray


@dataclass(slots=True, eq=False)
class _Iterate:
    """Between iterations: `target` is M − S + Y/μ, of which the next L is the shrunk form; `dual` is Y/μ."""

    target: FloatArray
    dual: FloatArray
    residual: float = float("inf")


def alm(
    M: FloatArray,
    *,
    partial: bool = True,
    growth: float = 1.6,
    tolerance: float = 1e-7,
    iterations: int = 200,
    observe: Observe | None = None,
) -> BaselineResult:
    """Robust PCA by inexact ALM; `partial` takes warm-started partial instead of full SVDs."""
    M = complete_matrix(M)
    rng = np.random.default_rng(0)
    shrink = Thresholding(partial, rng)
    lambda_ = 1.0 / np.sqrt(max(M.shape))
    norm, spectral = float(np.linalg.norm(M)), largest_value(M, rng)
    if norm == 0.0:
        return BaselineResult(M, M.copy(), 0, 0, 0.0, Ending.CONVERGED)
    mu = 1.25 / spectral
    dual = M / (max(spectral, float(np.abs(M).max()) / lambda_) * mu)
    now = _Iterate(M + dual, dual)
    number = 0
    while number < iterations and now.residual > tolerance * norm:
        number += 1
        low = shrink(now.target, 1.0 / mu)
        _advance(M, low, now, lambda_ / mu, growth)
        mu *= growth
        if observe is not None:
            observe(number, low.dense(), M + now.dual - now.target)
    S = M + now.dual - now.target
    ending = Ending.CONVERGED if now.residual <= tolerance * norm else Ending.OUT_OF_ITERATIONS
    return BaselineResult(low.dense(), S, low.values.size, number, now.residual / norm, ending)


def _advance(M: FloatArray, low: Factors, now: _Iterate, threshold: float, growth: float) -> None:
    """S, the multiplier and the next target in one sweep over rows.

    With T = M − L + Y/μ and C = clip(T, ±λ/μ): S = T − C, the residual M − L − S is C − Y/μ, and the new Y is μC.
    """
    scaled, right, squared, multiply = low.U * low.values, low.V.T, 0.0, sweeps().multiply

    def sweep(rows: slice) -> None:
        nonlocal squared
        L = scaled[rows] @ right
        squared += multiply(M[rows], L, now.dual[rows], now.target[rows], threshold, growth)

    by_rows(M.shape, sweep)
    now.residual = float(np.sqrt(squared))

"""The aggregator's step of a refinement round: the next subspace, centre and scales, from sums over sites.

With the sites' coefficients V fitted to (U, c, σ), the objective's gradient in row k of U is −Σ_j ψ_kj v_j, and its
curvature about w̄_k VᵀV, where w̄_k is the row's mean weight. So one step is U + diag(1/w̄) ΨV (VᵀV)⁻¹: Newton's step for
weights that do not depend on V, as those of scattered errors do not. The centre moves by ΣΨ/ΣW likewise; where a third
of a feature's entries lies to one side, by the median residual, which of all estimates of a location is biased least.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.method import FloatArray

LEAST_WEIGHT = 0.1  # a row whose entries hardly weigh must not be thrown far by the few that do
FEW_OUT, MANY_OUT = 0.8, 0.7  # mean weights of a row; of normal noise it is 0.92, with a tenth of errors 0.82
LEAST_VARIANCE = 1e-10  # of the largest: a direction without coefficients is left where it is


@dataclass(frozen=True, slots=True, eq=False)
class RoundSums:
    """Sums over all columns of a refinement round."""

    pull: FloatArray  # ΨV, m × r
    shift: FloatArray  # Ψ1, m
    middle: FloatArray  # the median residual, m
    weight: FloatArray  # W1, m
    gram: FloatArray  # VᵀV, r × r
    total: FloatArray  # Vᵀ1, r
    columns: float


@dataclass(frozen=True, slots=True, eq=False)
class Subspace:
    """The shared part of the model, directions in order of the variance of their coefficients."""

    U: FloatArray
    centre: FloatArray
    variance: FloatArray  # of the coefficients, per direction


def row_step(now: Subspace, sums: RoundSums, noise: FloatArray) -> tuple[Subspace, float]:
    """The next subspace, and how far L moves by it: root mean square over rows, in units of the row's noise.

    The step also grows U within its span, by as much as the ridge shrank V; that changes variances, not L.
    """
    n, rank = max(sums.columns, 1.0), now.U.shape[1]
    weight = np.maximum(sums.weight / n, LEAST_WEIGHT)
    mean = sums.total / n
    shift = _centre_step(sums.shift / n / weight, sums.middle, sums.weight / n)
    centre = now.centre + now.U @ mean + shift
    if rank == 0:
        return Subspace(now.U, centre, np.zeros(0)), float(np.sqrt(np.mean((shift / noise) ** 2)))
    covariance = sums.gram / n - np.outer(mean, mean)
    floor = LEAST_VARIANCE * max(float(np.trace(covariance)), np.finfo(np.float64).tiny)
    slope = (sums.pull - np.outer(sums.shift, mean)) / n / weight[:, None]
    turn = np.asarray(np.linalg.solve(covariance + floor * np.eye(rank), slope.T).T, dtype=np.float64)
    out, off = _out_of_span(now.U, turn), _out_of_span(now.U, shift)
    moved = np.einsum("kr,rs,ks->k", out, covariance, out) + off**2
    U, variance = principal(now.U + turn, covariance)
    return Subspace(U, centre, variance), float(np.sqrt(np.mean(moved / noise**2)))


def _centre_step(weighted: FloatArray, middle: FloatArray, weight: FloatArray) -> FloatArray:
    """Newton's step for the centre; the median residual where the mean weight says that much of the row is out."""
    share = np.clip((FEW_OUT - weight) / (FEW_OUT - MANY_OUT), 0.0, 1.0)
    return np.asarray(share * middle + (1.0 - share) * weighted)


def _out_of_span(U: FloatArray, move: FloatArray) -> FloatArray:
    return np.asarray(move - U @ (U.T @ move))


def principal(factor: FloatArray, covariance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Orthonormal directions of factor · covariance · factorᵀ, strongest first, and the variances along them."""
    Q, R = np.linalg.qr(factor)
    values, vectors = np.linalg.eigh(R @ covariance @ R.T)
    return Q @ vectors[:, ::-1], np.maximum(values[::-1], 0.0)


def ridge_of(subspace: Subspace, noise: FloatArray) -> FloatArray:
    """Noise along each direction over the variance of the coefficients in it."""
    along = (subspace.U**2).T @ noise**2
    largest = float(subspace.variance.max(initial=0.0))
    return np.asarray(along / np.maximum(subspace.variance, max(LEAST_VARIANCE * largest, np.finfo(np.float64).tiny)))


def leverage_of(subspace: Subspace, ridge: FloatArray) -> FloatArray:
    """How far each feature's own entry decides its fitted value: 0 not at all, 1 alone."""
    return np.asarray(subspace.U**2 @ (1.0 / (1.0 + ridge)))

"""The two half-steps of a refinement round, both pure: coefficients of columns at the sites, and the subspace, centre
and scales that follow from their sums at the aggregator.

Each column minimizes Σ_k σ_k² ρ((x_k − c_k − u_kᵀv)/σ_k) + ½ vᵀ diag(ridge) v over its observed entries, with Tukey's
biweight ρ. The ridge is the noise along a direction over the variance of the coefficients in it, so that a direction
supported by few or noisy entries stays near the centre instead of following them.

With the sites' coefficients V fitted to (U, c, σ), the objective's gradient in row k of U is −Σ_j ψ_kj v_j, and its
curvature about w̄_k VᵀV, where w̄_k is the row's mean weight. So one step is U + diag(1/w̄) ΨV (VᵀV)⁻¹: Newton's step
for weights that do not depend on V, as those of scattered errors do not. The centre moves by ΣΨ/ΣW likewise; if a third
of a feature's entries lies to one side, it moves by the median residual, which is the least biased estimate of a
location.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.kernels.refinement_loops import HUBER, TUKEY, refinement_loops
from dcfpca.rpca.method import FloatArray, WorkArray
from dcfpca.rpca.robust_projection import project

SOLVED_WIDTH = 12  # up to so many directions, normal equations are solved for every column
WEIGHTED_STEPS = 4
PLAIN_STEPS = 8  # steps with the weights' upper bound in place of the weights, where directions are many
DOUBLE_STEPS = 2  # of them in double precision; those before are far above the rounding of single
START_STEPS = 10
LOCKED = 0.5  # of a column's observed entries: if these have no weight, the column is locked
AS_GOOD = 1e-6  # relative: rounding must not decide which of two nearly equal minima is lower


@dataclass(frozen=True, slots=True, eq=False)
class ColumnModel:
    """L = centre + U V: what all sites share while they fit their own columns."""

    U: FloatArray  # m × r, orthonormal columns
    centre: FloatArray  # m
    noise: FloatArray  # m, positive
    ridge: FloatArray  # r

    def leading(self, rank: int) -> ColumnModel:
        """With the first directions alone."""
        return ColumnModel(self.U[:, :rank], self.centre, self.noise, self.ridge[:rank])

    def low_rank(self, V: FloatArray) -> FloatArray:
        """L of columns with these coefficients."""
        return self.centre[:, None] + self.U @ V.T


def fit_columns(model: ColumnModel, M: FloatArray, start: FloatArray | None) -> FloatArray:
    """Coefficients (n × r) of these columns, from the given start, or else from a Huber fit."""
    if model.U.shape[1] == 0:
        return np.zeros((M.shape[1], 0))
    X = np.subtract(M, model.centre[:, None], order="C")
    if start is not None:
        return _refined(model, X, start, "tukey", WEIGHTED_STEPS)
    zero = np.zeros((M.shape[1], model.U.shape[1]))
    return _refined(model, X, _refined(model, X, zero, "huber", START_STEPS), "tukey", 2 * WEIGHTED_STEPS)


def fit_freely(model: ColumnModel, M: FloatArray) -> FloatArray:
    """Coefficients from the data alone. Columns that contradict them in most entries are fitted again from a robust
    projection: entries far off on features with leverage carry a Huber fit away, and then nothing near the truth has
    any weight."""
    V, X = fit_columns(model, M, None), np.subtract(M, model.centre[:, None], order="C")
    observed = np.maximum(np.count_nonzero(~np.isnan(X), axis=0), 1)
    off = np.abs(X - model.U @ V.T) > TUKEY * model.noise[:, None]
    locked = np.count_nonzero(off, axis=0) > LOCKED * observed
    if model.U.shape[1] and locked.any():
        own = X[:, locked]
        freed = _refined(model, own, project(model.U, own).coefficients, "tukey", WEIGHTED_STEPS)
        V[locked] = better_of(model, M[:, locked], V[locked], freed)
    return V


def better_of(model: ColumnModel, M: FloatArray, V: FloatArray, other: FloatArray) -> FloatArray:
    """For each column the coefficients with the lower objective; V where they are as good as equal."""
    first, second = objective_by_column(model, M, V), objective_by_column(model, M, other)
    return np.where((first <= (1.0 + AS_GOOD) * second)[:, None], V, other)


def weights_of(residual: FloatArray, noise: FloatArray, kind: str = "tukey") -> FloatArray:
    """ψ(x)/x of residuals in units of the noise; 0 for unobserved entries (NaN)."""
    x = residual / noise[:, None]
    weights = np.maximum(1.0 - (x / TUKEY) ** 2, 0.0) ** 2
    if kind == "huber":
        weights = HUBER / np.maximum(np.abs(x), HUBER)
    return np.where(np.isnan(x), 0.0, weights)


def pulls(M: FloatArray, L: FloatArray, noise: FloatArray, calm: NDArray[np.bool_]) -> tuple[FloatArray, FloatArray]:
    """ψ(M − L)/noise of calm columns, 0 of the others, and each row's sum of their weights. May write to L."""
    if (loops := refinement_loops()) is not None:
        weight = np.zeros(len(M))
        loops.weighted(M, L, noise, calm, weight)
        return L, weight
    R = M - L
    W = weights_of(R, noise) * calm
    return np.where(np.isnan(R), 0.0, R) * W / noise[:, None], W.sum(axis=1)


def objective_by_column(model: ColumnModel, M: FloatArray, V: FloatArray) -> FloatArray:
    """What each column's coefficients minimize."""
    ridged = 0.5 * (V**2 @ model.ridge)
    if (loops := refinement_loops()) is not None:
        loops.losses(M, model.low_rank(V), model.noise, ridged)
        return np.asarray(ridged)
    x = (M - model.low_rank(V)) / model.noise[:, None]
    loss = TUKEY**2 / 6.0 * (1.0 - np.maximum(1.0 - (x / TUKEY) ** 2, 0.0) ** 3)
    fitted = np.nansum(model.noise[:, None] ** 2 * loss, axis=0)
    return np.asarray(fitted + ridged)


def _refined(model: ColumnModel, X: FloatArray, V: FloatArray, kind: str, steps: int) -> FloatArray:
    """Further steps from V, for centred columns X (NaN: unobserved)."""
    if model.U.shape[1] > SOLVED_WIDTH:
        return _plain_steps(model, X, V, kind, max(steps, PLAIN_STEPS))
    filled, loops = np.where(np.isnan(X), 0.0, X), refinement_loops()
    upper, lower = np.triu_indices(model.U.shape[1])
    products = model.U[:, upper] * model.U[:, lower]
    for _ in range(steps):
        W = model.U @ V.T
        if loops is not None:
            loops.influences(X, W, model.noise, kind == "huber", True)
        else:
            W = weights_of(X - W, model.noise, kind)
        V = _weighted_solution(model, products, filled, W)
    return V


def _weighted_solution(model: ColumnModel, products: FloatArray, X: FloatArray, W: FloatArray) -> FloatArray:
    """argmin over v of ½ Σ_k w_k (x_k − u_kᵀv)² + ½ vᵀ diag(ridge) v, for every column; `products` has the upper
    triangles of u_k u_kᵀ in rows."""
    width = model.U.shape[1]
    upper, lower = np.triu_indices(width)
    grams = np.empty((X.shape[1], width, width))
    grams[:, upper, lower] = grams[:, lower, upper] = W.T @ products
    grams += np.diag(np.maximum(model.ridge, 1e-12))
    return np.asarray(np.linalg.solve(grams, ((W * X).T @ model.U)[:, :, None])[:, :, 0], dtype=np.float64)


def _plain_steps(model: ColumnModel, X: FloatArray, V: FloatArray, kind: str, steps: int) -> FloatArray:
    """Majorized steps: the weights are at most 1 and UᵀU = I, so every step lowers the objective."""
    if (loops := refinement_loops()) is not None:
        for precision, count in ((np.float32, steps - DOUBLE_STEPS), (np.float64, DOUBLE_STEPS)):
            U: WorkArray = model.U.astype(precision)
            own, shrink = X.astype(precision), (1.0 + model.ridge).astype(precision)
            found: WorkArray = V.astype(precision)
            for _ in range(count):
                pull: WorkArray = U @ found.T
                loops.influences(own, pull, model.noise, kind == "huber", False)
                found = (found + pull.T @ U) / shrink
            V = found
        return V
    for _ in range(steps):
        R = X - model.U @ V.T
        pull = np.where(np.isnan(R), 0.0, R) * weights_of(R, model.noise, kind)
        V = (V + pull.T @ model.U) / (1.0 + model.ridge)
    return V


LEAST_WEIGHT = 0.1  # a row whose entries have hardly any weight must not be moved far by the few that have
FEW_OUT, MANY_OUT = 0.8, 0.7  # mean weights of a row; of normal noise it is 0.92, with a tenth of errors 0.82
LEAST_VARIANCE = 1e-10  # of the largest: a direction without coefficients is left where it is
NO_VARIANCE = 1e-24  # of the squared noise: coefficients this small are zero but for rounding


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
    slope = (sums.pull - np.outer(sums.shift, mean)) / n / weight[:, None]
    turn = _newton_step(covariance, slope, least=NO_VARIANCE * float(noise @ noise))
    out, off = _out_of_span(now.U, turn), _out_of_span(now.U, shift)
    moved = np.einsum("kr,rs,ks->k", out, covariance, out) + off**2
    U, variance = principal(now.U + turn, covariance)
    return Subspace(U, centre, variance), float(np.sqrt(np.mean(moved / noise**2)))


def carried_directions(subspace: Subspace, noise: FloatArray) -> int:
    """The number of directions whose coefficients vary at all; a rank above it predicts nothing more."""
    return int(np.count_nonzero(subspace.variance > NO_VARIANCE * float(noise @ noise)))


def _newton_step(covariance: FloatArray, slope: FloatArray, least: float) -> FloatArray:
    """slope · covariance⁻¹, with a floor under the weak directions; no step where the coefficients have no variance.

    Features that nearly always have one value leave all coefficients at zero and nothing to divide by.
    """
    size = float(np.trace(covariance))
    if not size > least:
        return np.zeros_like(slope)
    scaled = covariance / size + LEAST_VARIANCE * np.eye(covariance.shape[0])
    return np.asarray(np.linalg.solve(scaled, slope.T / size).T, dtype=np.float64)


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
    least = np.maximum(LEAST_VARIANCE * float(subspace.variance.max(initial=0.0)), NO_VARIANCE * along)
    return np.asarray(along / np.maximum(np.maximum(subspace.variance, least), np.finfo(np.float64).tiny))


def leverage_of(subspace: Subspace, ridge: FloatArray) -> FloatArray:
    """How far each feature's own entry decides its fitted value, from 0 (not at all) to 1 (alone)."""
    return np.asarray(subspace.U**2 @ (1.0 / (1.0 + ridge)))

"""Coefficients of columns under a fixed subspace, centre and noise per feature. Pure; columns are independent.

Each column minimizes   Σ_k σ_k² ρ((x_k − c_k − u_kᵀv)/σ_k) + ½ vᵀ diag(ridge) v   over its observed entries, with
Tukey's biweight ρ. The ridge is the noise along a direction over the variance of the coefficients in it, so that a
direction which few or noisy entries speak of stays near the centre instead of following them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.method import FloatArray

TUKEY = 4.685  # 95 % efficiency under normal noise
HUBER = 1.345
SOLVED_WIDTH = 12  # up to so many directions, normal equations are solved for every column
WEIGHTED_STEPS = 4
PLAIN_STEPS = 8  # steps with the weights' upper bound in place of the weights, where directions are many
START_STEPS = 10
AS_GOOD = 1e-6  # relatively: which of two like minima is lower must not be decided by rounding


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
    """Coefficients (n × r) of these columns; from a Huber fit where that ends lower than the given start does."""
    observed = ~np.isnan(M)
    X = np.where(observed, M - model.centre[:, None], 0.0)
    if model.U.shape[1] == 0:
        return np.zeros((M.shape[1], 0))
    if start is not None:
        return _refined(model, X, observed, start, "tukey", WEIGHTED_STEPS)
    zero = np.zeros((M.shape[1], model.U.shape[1]))
    V = _refined(model, X, observed, zero, "huber", START_STEPS)
    return _refined(model, X, observed, V, "tukey", 2 * WEIGHTED_STEPS)


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


def objective_by_column(model: ColumnModel, M: FloatArray, V: FloatArray) -> FloatArray:
    """What each column's coefficients minimize."""
    x = (M - model.low_rank(V)) / model.noise[:, None]
    loss = TUKEY**2 / 6.0 * (1.0 - np.maximum(1.0 - (x / TUKEY) ** 2, 0.0) ** 3)
    fitted = np.nansum(model.noise[:, None] ** 2 * loss, axis=0)
    return np.asarray(fitted + 0.5 * (V**2 @ model.ridge))


def _refined(
    model: ColumnModel, X: FloatArray, observed: FloatArray, V: FloatArray, kind: str, steps: int
) -> FloatArray:
    if model.U.shape[1] > SOLVED_WIDTH:
        return _plain_steps(model, X, observed, V, kind, max(steps, PLAIN_STEPS))
    for _ in range(steps):
        W = weights_of(np.where(observed, X - model.U @ V.T, np.nan), model.noise, kind)
        V = _weighted_solution(model, X, W)
    return V


def _weighted_solution(model: ColumnModel, X: FloatArray, W: FloatArray) -> FloatArray:
    """argmin over v of ½ Σ_k w_k (x_k − u_kᵀv)² + ½ vᵀ diag(ridge) v, for every column."""
    width = model.U.shape[1]
    upper, lower = np.triu_indices(width)
    grams = np.empty((X.shape[1], width, width))
    grams[:, upper, lower] = grams[:, lower, upper] = W.T @ (model.U[:, upper] * model.U[:, lower])
    grams += np.diag(np.maximum(model.ridge, 1e-12))
    return np.asarray(np.linalg.solve(grams, ((W * X).T @ model.U)[:, :, None])[:, :, 0], dtype=np.float64)


def _plain_steps(
    model: ColumnModel, X: FloatArray, observed: FloatArray, V: FloatArray, kind: str, steps: int
) -> FloatArray:
    """Majorized steps: the weights are at most 1 and UᵀU = I, so every step lowers the objective."""
    for _ in range(steps):
        R = np.where(observed, X - model.U @ V.T, np.nan)
        pull = np.where(observed, R, 0.0) * weights_of(R, model.noise, kind)
        V = (V + pull.T @ model.U) / (1.0 + model.ridge)
    return V

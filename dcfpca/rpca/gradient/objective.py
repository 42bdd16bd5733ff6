"""The objective of `gradient` in Huber form, and its exact minimization over V for a fixed U.

With H_λ the Huber loss (quadratic inside ±λ, slope λ outside), eliminating S leaves for each site

    h(V) = ρ/2 ‖V‖² + H_λ(M − U Vᵀ),     S = soft(M − U Vᵀ, λ),     ∇h(V) = ρV − Cᵀ U,    C = clip(M − U Vᵀ, ±λ).

Unobserved entries (NaN) have loss zero, so C is zero there and nothing else changes.

L = U Vᵀ has the singular values of U (VᵀV)^½, and VᵀV = Σ V_iᵀV_i is a sum over sites of p × p matrices: no site's V is
needed, and it tells the aggregator no more than `subspace` does, which has the same figures from UᵀG.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray

INNER_LIMIT = 2000  # accelerated steps; reached only with ρ many orders below ‖U‖², and then the certificate says so


@dataclass(frozen=True, slots=True)
class Penalties:
    """λ of the outliers and ρ of the factors."""

    lambda_: float
    rho: float


def check_penalties(penalties: Penalties, rows: int, columns: int) -> None:
    """Refuse penalties under which the paper proves that the truth cannot be found: it needs ρ² ≤ λ²mn."""
    largest = penalties.lambda_ * np.sqrt(float(rows) * columns)
    if penalties.rho > largest:
        raise BadInput(
            f"rho = {penalties.rho:.4g} is too large for lambda = {penalties.lambda_:.4g} and a {rows} × {columns} "
            "matrix: where rho² > lambda²·m·n the gradient is nonzero unless U = 0, so the only solution is zero.",
            f"Choose rho at most {largest:.4g}, or a larger lambda.",
        )


def clipped_residual(M: FloatArray, U: FloatArray, V: FloatArray, lambda_: float) -> FloatArray:
    """C = clip(M − U Vᵀ, ±λ), zero where M is unobserved. λ may be infinite."""
    C = U @ V.T
    np.subtract(M, C, out=C)
    np.clip(C, -lambda_, lambda_, out=C)
    if np.isnan(C.sum()):
        np.copyto(C, 0.0, where=np.isnan(C))
    return C


def huber_objective(M: FloatArray, U: FloatArray, V: FloatArray, penalties: Penalties) -> float:
    """h(V) for this block of columns; add ρ/2 ‖U‖² once for the whole objective."""
    lambda_ = penalties.lambda_
    size = np.abs(M - U @ V.T)
    loss = np.where(size <= lambda_, 0.5 * size**2, lambda_ * (size - 0.5 * lambda_))
    return float(np.nansum(loss) + 0.5 * penalties.rho * np.sum(V * V))


@dataclass(frozen=True, slots=True, eq=False)
class LeftFactor:
    """U with the Cholesky factor of UᵀU + ρI, shared by all blocks of a local iteration."""

    U: FloatArray
    penalties: Penalties
    cholesky: tuple[FloatArray, bool]

    @staticmethod
    def of(U: FloatArray, penalties: Penalties) -> LeftFactor:
        """Factor UᵀU + ρI; raises LinAlgError where U is no longer finite."""
        gram = U.T @ U
        gram[np.diag_indices_from(gram)] += penalties.rho
        return LeftFactor(U, penalties, scipy.linalg.cho_factor(gram, lower=True, check_finite=False))

    def solve(self, right: FloatArray) -> FloatArray:
        """X (UᵀU + ρI)⁻¹ for X of n × width."""
        return np.asarray(scipy.linalg.cho_solve(self.cholesky, right.T, check_finite=False)).T

    def gradient(self, M: FloatArray, V: FloatArray) -> tuple[FloatArray, float]:
        """∇h(V), and its norm relative to the two terms that cancel in it (the stationarity certificate)."""
        pull = clipped_residual(M, self.U, V, self.penalties.lambda_).T @ self.U
        shrink = self.penalties.rho * V
        gradient = shrink - pull
        scale = float(np.linalg.norm(shrink) + np.linalg.norm(pull))
        return gradient, float(np.linalg.norm(gradient)) / scale if scale else 0.0

    def minimize(self, M: FloatArray, start: FloatArray, tolerance: float) -> tuple[FloatArray, float]:
        """argmin h and its certificate, by Nesterov's method in the metric UᵀU + ρI.

        One plain step in this metric is exactly one alternation "S given V, then V given S". Columns are independent
        problems, so each restarts its momentum on its own when it points uphill.
        """
        V, ahead, momentum = start, start, np.ones(start.shape[0])
        for _ in range(INNER_LIMIT):
            gradient, residual = self.gradient(M, ahead)
            if not residual > tolerance:
                break
            following = ahead - self.solve(gradient)
            uphill = np.einsum("ij,ij->i", gradient, following - V) > 0
            momentum[uphill] = 1.0
            grown = 0.5 + np.sqrt(0.25 + momentum**2)
            ahead = following + ((momentum - 1.0) / grown)[:, None] * (following - V)
            V, momentum = following, grown
        return ahead, residual


def unit_of_strengths(U: FloatArray) -> float:
    """The size of an entry of U. VᵀV in this unit is of U's own size, so that a fixed-point sum keeps U's digits."""
    return float(np.sqrt(np.mean(U * U))) or 1.0


def packed(V: FloatArray, unit: float) -> FloatArray:
    """VᵀV/unit as the upper triangle by rows; it is symmetric."""
    gram = V.T @ V
    return np.asarray(gram[np.triu_indices_from(gram)] / unit)


def singular_values(U: FloatArray, upper: FloatArray) -> FloatArray:
    """The singular values of U Vᵀ in descending order, with `upper` the upper triangle of VᵀV by rows."""
    width = U.shape[1]
    gram = np.zeros((width, width))
    gram[np.triu_indices(width)] = upper
    strengths, directions = np.linalg.eigh(gram, UPLO="U")
    triangle = np.linalg.qr(U, mode="r")
    return np.linalg.svd(triangle @ (directions * np.sqrt(np.maximum(strengths, 0.0))), compute_uv=False)

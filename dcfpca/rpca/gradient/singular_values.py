"""The singular values of L = U Vᵀ in `gradient`, from the sum of VᵀV and without any site's V.

L has the singular values of U (VᵀV)^½, and VᵀV = Σ V_iᵀV_i is a sum over sites of p × p matrices. It tells the
aggregator no more than `subspace` does, which has the same figures from UᵀG.
"""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray


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

"""The Rayleigh–Ritz step: the next subspace and its singular values from the sites' sum, and the change of L."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.kernels.step_parameters import select_columns
from dcfpca.rpca.method import FloatArray

NUMERICALLY_ABSENT = 1e-12  # of the largest
DEPENDENT = 1e-7  # the squared ratio of singular values below which squares tell too little


def rotate_to_principal(U: FloatArray, Z: FloatArray, scales: FloatArray) -> tuple[FloatArray, FloatArray]:
    """U rotated within its span to the principal directions of YᵀU, and their singular values; Z = Y YᵀU/σ."""
    squares, turn = np.linalg.eigh((U.T @ Z) * scales, UPLO="U")
    return U @ turn[:, ::-1], np.sqrt(np.maximum(squares[::-1], 0.0))


def rayleigh_ritz(U: FloatArray, Z: FloatArray, scales: FloatArray, rough: bool) -> tuple[FloatArray, FloatArray]:
    """The left singular vectors and singular values of Y restricted to the row space that the sites used.

    The sites sent Z = Y V̂ with V̂ = YᵀU/σ. Since UᵀZ = σ V̂ᵀV̂, the aggregator can orthonormalize V̂ without having it,
    which makes the singular values exact on that space instead of squared.
    """
    gram = (U.T @ Z) / scales[:, None]
    # The scales are the strengths of the round before, which a direction that had vanished may exceed by far: it must
    # not make the others look absent. One that fell short of them is left short, for what it has may be rounding.
    lengths = np.sqrt(np.maximum(np.diag(gram), 1.0))
    gram, Z = gram / lengths / lengths[:, None], Z / lengths
    # The values descend, so the upper triangle is the half whose rows were divided by the larger of two: it keeps
    # its digits where a direction has all but vanished.
    if rough and (found := _via_gram(gram, Z)) is not None:
        return found
    strengths, vectors = np.linalg.eigh(gram, UPLO="U")
    there = strengths > NUMERICALLY_ABSENT * max(strengths[-1], 0.0)
    inverse_roots = np.zeros_like(strengths)
    inverse_roots[there] = 1.0 / np.sqrt(strengths[there])
    Q, R = np.linalg.qr(Z @ (vectors * inverse_roots))
    P, values, _ = np.linalg.svd(R)
    return Q @ P, values


def _via_gram(gram: FloatArray, Z: FloatArray) -> tuple[FloatArray, FloatArray] | None:
    """The same from V̂ᵀV̂ = C Cᵀ and ZᵀZ: one decomposition of p × p, C⁻¹ ZᵀZ C⁻ᵀ = W σ² Wᵀ, and U = Z C⁻ᵀ W/σ.

    It loses half the digits and takes a third of the time. None where the columns of V̂ or Y V̂ are so nearly dependent
    that the vectors would not be orthogonal to what single precision has.
    """
    try:
        factor = np.linalg.cholesky(gram, upper=True)
        spread = (np.diag(factor).min() / np.diag(factor).max()) ** 2
        inverse = np.linalg.inv(factor)
        squares, vectors = np.linalg.eigh(inverse.T @ (Z.T @ Z) @ inverse)
    except np.linalg.LinAlgError:  # of a factor that is zero, or so small that its inverse is not finite
        return None
    if spread * squares[0] <= DEPENDENT * squares[-1]:
        return None
    values = np.sqrt(squares[::-1])
    return Z @ (inverse @ (vectors[:, ::-1] / values)), values


def relative_change(old_U: FloatArray, old: FloatArray, new_U: FloatArray, new: FloatArray) -> float:
    """The change of L = U diag(σ) … relative to its size: out of the old subspace, and in its singular values.

    Computed from differences, not from 1 − cos², so that it is exact down to rounding.
    """
    size = np.sqrt(np.sum(new**2))
    if size == 0.0:
        return 0.0 if not old.any() else 1.0
    there, was = (select_columns(U, sizes.nonzero()[0]) for U, sizes in ((new_U, new), (old_U, old)))
    out = (there - was @ (was.T @ there)) * new[new > 0.0]
    return float(np.sqrt(np.sum(out**2) + np.sum((np.sort(new) - np.sort(old)) ** 2)) / size)

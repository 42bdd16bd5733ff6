"""GoDec (Zhou, Tao 2011, ICML): rank and number of outliers are given; L and S take turns.

L is a randomized projection of M − S onto rank r, S the largest entries of M − L. Two things are kinder than in the
paper: S comes first (from S = 0, gross outliers take tens of iterations to leave L), and the random sketch is drawn
once; later ones start from the last factor, which saves a product.
"""

from __future__ import annotations

import numpy as np

from benchmarks.baselines.elementwise_kernels import sweeps
from benchmarks.baselines.result import BaselineResult, Ending, Observe, complete_matrix, fitting_rank
from benchmarks.baselines.spectrum import leading, orthonormal
from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray


def godec(
    M: FloatArray,
    rank: int,
    outliers: int,
    *,
    tolerance: float = 1e-7,
    iterations: int = 500,
    observe: Observe | None = None,
) -> BaselineResult:
    """Robust PCA with at most `outliers` entries in S (the paper's cardinality)."""
    M = complete_matrix(M)
    fitting_rank(rank, M)
    if not 0 <= outliers < M.size:
        raise BadInput(f"{outliers} outliers do not fit a matrix of {M.size} entries.")
    norm, number, residual = float(np.linalg.norm(M)), 0, float("inf")
    L, cleaned, clean = np.zeros_like(M), np.empty_like(M), sweeps().clean
    clean(M, L, _bar(M, L, outliers), cleaned)
    left = leading(cleaned, rank, np.random.default_rng(0), steps=1).U
    while number < iterations and residual > tolerance * norm:
        number += 1
        right = orthonormal(cleaned.T @ left)
        left = cleaned @ right
        np.matmul(left, right.T, out=L)
        residual = float(np.sqrt(clean(M, L, _bar(M, L, outliers), cleaned)))
        if observe is not None:
            observe(number, L, M - cleaned)
    ending = Ending.CONVERGED if residual <= tolerance * norm else Ending.OUT_OF_ITERATIONS
    return BaselineResult(L, M - cleaned, rank, number, residual / norm if norm else 0.0, ending)


def _bar(M: FloatArray, L: FloatArray, outliers: int) -> float:
    """The threshold that this many entries of |M − L| exceed."""
    sizes = (M - L).ravel()
    np.abs(sizes, out=sizes)
    place = sizes.size - 1 - outliers
    sizes.partition(place)
    return float(sizes[place])

"""IRCUR (Cai, Hamm, Huang, Li, Wang 2021, IEEE SPL 28): robust PCA of known rank from some rows and columns alone.

L = C U⁺ R, where C are some columns of M − S, R some rows and U their crossing cut to rank r. An iteration touches
only those rows and columns, so its time does not grow with m·n. This is the variant whose choice stays fixed (IRCUR-F),
with the singular vectors of U carried from one iteration to the next. S is formed for the whole matrix at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines.result import BaselineResult, Ending, Observe, complete_matrix, fitting_rank
from benchmarks.baselines.spectrum import Factors, full, subspace_step
from dcfpca.rpca.method import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """The chosen rows I and columns J, and M there."""

    I: NDArray[np.intp]  # noqa: E741 — the paper's letter
    J: NDArray[np.intp]
    rows: FloatArray
    columns: FloatArray

    @property
    def norm(self) -> float:
        return float(np.linalg.norm(self.rows) + np.linalg.norm(self.columns))


def ircur(
    M: FloatArray,
    rank: int,
    *,
    sampling: float = 3.0,
    decay: float = 0.65,
    tolerance: float = 1e-7,
    iterations: int = 200,
    seed: int = 0,
    observe: Observe | None = None,
) -> BaselineResult:
    """Robust PCA from `sampling` · rank · log m rows, and as many columns by log n; the threshold falls by `decay`."""
    M = complete_matrix(M)
    fitting_rank(rank, M)
    chosen = _choose(M, rank, sampling, np.random.default_rng(seed))
    threshold = 4.0 * 1.4826 * float(np.median(np.abs(chosen.rows))) or float(np.abs(chosen.rows).max())
    A, B, core = np.zeros((M.shape[0], rank)), np.zeros((rank, M.shape[1])), None
    number, residual, norm = 0, float("inf"), chosen.norm
    while number < iterations and residual > tolerance * norm:
        number += 1
        R, left_rows = _cleaned(chosen.rows, A[chosen.I] @ B, threshold)
        C, left_columns = _cleaned(chosen.columns, A @ B[:, chosen.J], threshold)
        core = _cut(R[:, chosen.J], rank, core)
        A, B = C @ (core.V / np.maximum(core.values, np.finfo(float).tiny)), core.U.T @ R
        residual, threshold = left_rows + left_columns, threshold * decay
        if observe is not None:
            observe(number, A @ B, _hard(M - A @ B, threshold))
    L = A @ B
    ending = Ending.CONVERGED if residual <= tolerance * norm else Ending.OUT_OF_ITERATIONS
    return BaselineResult(L, _hard(M - L, threshold), rank, number, residual / norm if norm else 0.0, ending)


def _choose(M: FloatArray, rank: int, sampling: float, rng: np.random.Generator) -> _Sample:
    rows, columns = (
        np.sort(rng.choice(side, min(side, max(rank, round(sampling * rank * np.log(side)))), replace=False))
        for side in M.shape
    )
    return _Sample(rows, columns, np.ascontiguousarray(M[rows]), np.ascontiguousarray(M[:, columns]))


def _cleaned(M: FloatArray, L: FloatArray, threshold: float) -> tuple[FloatArray, float]:
    """M − hard(M − L, threshold), and the norm of what that leaves between it and L."""
    gap = M - L
    gap *= np.abs(gap) <= threshold
    left = float(np.linalg.norm(gap))
    gap += L
    return gap, left


def _cut(U: FloatArray, rank: int, before: Factors | None) -> Factors:
    """The leading factors of the crossing; from the last ones, a step of power iteration finds them."""
    found = full(U) if before is None else subspace_step(U, before.V)
    return Factors(found.U[:, :rank], found.values[:rank], found.V[:, :rank])


def _hard(R: FloatArray, threshold: float) -> FloatArray:
    return np.where(np.abs(R) > threshold, R, 0.0)

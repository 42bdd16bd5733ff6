"""Singular value decompositions: the full one, and a partial one that starts where the last one ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import qr, svd

from dcfpca.rpca.method import FloatArray

ROW_BLOCK_BYTES = 1 << 20  # row blocks of this size stay in cache through a chain of elementwise steps


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """U diag(values) Vᵀ, values falling."""

    U: FloatArray
    values: FloatArray
    V: FloatArray

    def shrunk(self, threshold: float) -> Factors:
        """Soft thresholding of the singular values; those that become zero are dropped."""
        keep = int(np.count_nonzero(self.values > threshold))
        return Factors(self.U[:, :keep], self.values[:keep] - threshold, self.V[:, :keep])

    def dense(self) -> FloatArray:
        """The m × n product."""
        return np.asarray((self.U * self.values) @ self.V.T)


def full(A: FloatArray) -> Factors:
    """All singular values, by LAPACK's divide and conquer."""
    U, values, Vt = svd(A, full_matrices=False, check_finite=False, lapack_driver="gesdd")
    return Factors(U, values, Vt.T)


def orthonormal(A: FloatArray) -> FloatArray:
    """An orthonormal basis of A's columns."""
    return np.asarray(qr(A, mode="economic", check_finite=False, overwrite_a=True)[0])


def subspace_step(A: FloatArray, V: FloatArray) -> Factors:
    """The leading factors of A after one step of block power iteration from the right subspace V."""
    left = orthonormal(A @ V)
    right, triangle = qr(A.T @ left, mode="economic", check_finite=False, overwrite_a=True)
    u, values, vt = svd(triangle.T, check_finite=False)
    return Factors(left @ u, values, np.asarray(right @ vt.T))


def leading(A: FloatArray, count: int, rng: np.random.Generator, steps: int = 3) -> Factors:
    """The `count` leading factors of A from a random start, with some more for accuracy."""
    width = min(count + 10, *A.shape)
    found = Factors(np.zeros((0, 0)), np.zeros(0), rng.standard_normal((A.shape[1], width)))
    for _ in range(steps):
        found = subspace_step(A, found.V)
    return Factors(found.U[:, :count], found.values[:count], found.V[:, :count])


def largest_value(A: FloatArray, rng: np.random.Generator) -> float:
    """‖A‖₂ to about a percent, which is all that starting values need."""
    return float(leading(A, 1, rng, steps=4).values[0])


class Thresholding:
    """Soft thresholding of singular values, in full or warm-started: each call starts from the last one's subspace.

    The partial form keeps a margin beyond the values found above the threshold and widens when the margin fills up, so
    that no value above the threshold is missed.
    """

    def __init__(self, partial: bool, rng: np.random.Generator, start: int = 10) -> None:
        self._partial = partial
        self._rng = rng
        self._start = start
        self._V: FloatArray | None = None

    def __call__(self, A: FloatArray, threshold: float) -> Factors:
        """prox of threshold·‖·‖_* at A."""
        if not self._partial:
            return full(A).shrunk(threshold)
        smallest = min(A.shape)
        found = subspace_step(A, self._subspace(A.shape[1], self._start))
        while found.values[-1] > threshold and found.values.size < smallest:
            self._V = found.V
            wider = min(smallest, 2 * found.values.size)
            found = subspace_step(A, self._subspace(A.shape[1], wider))
        shrunk = found.shrunk(threshold)
        margin = max(5, shrunk.values.size // 20)
        self._V = found.V[:, : shrunk.values.size + margin]
        return shrunk

    def _subspace(self, columns: int, least: int) -> FloatArray:
        """The last subspace, filled up with random directions to at least this width."""
        known = np.zeros((columns, 0)) if self._V is None else self._V
        lacking = min(least, columns) - known.shape[1]
        if lacking <= 0:
            return known
        fresh = self._rng.standard_normal((columns, lacking)) / np.sqrt(columns)
        return np.concatenate([known, fresh], axis=1)


def by_rows(shape: tuple[int, ...], work: Callable[[slice], None]) -> None:
    """Call `work` on consecutive row blocks of a matrix of this shape that fit in cache."""
    height = max(1, ROW_BLOCK_BYTES // (8 * shape[1]))
    for start in range(0, shape[0], height):
        work(slice(start, min(start + height, shape[0])))

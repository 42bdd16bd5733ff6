"""The initial subspace of a run: random, or that of an earlier run."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dcfpca.rpca.method import FloatArray

WARM = "warm"  # the key of an earlier U in a consensus' memory
TALL = 4  # a random matrix with this many times as many rows as columns has a condition number of about 3
START = 0x5742  # separates these draws from those of synthetic data with the same seed


def opening_basis(rows: int, width: int, seed: int, memory: Mapping[str, FloatArray]) -> FloatArray:
    """Orthonormal columns: those of an earlier U first, where there is one, then random directions."""
    random = _gaussian(rows, width, seed)
    warm = memory.get(WARM, np.zeros((rows, 0)))[:, :width]
    if not warm.size and rows >= TALL * width:
        return _cholesky_qr(random)
    basis: FloatArray = np.linalg.qr(np.concatenate([warm, random[:, warm.shape[1] :]], axis=1))[0]
    return basis


def _cholesky_qr(A: FloatArray) -> FloatArray:
    """As orthonormal as by QR if the columns are far from dependent, in a third of the time."""
    basis: FloatArray = A @ np.linalg.inv(np.linalg.cholesky(A.T @ A)).T
    return basis


def warm_mark(memory: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """What is kept of a warm start once the run has begun: the fact that there was one, not its U."""
    return {WARM: np.zeros((0, 0))} if WARM in memory else {}


def opening_factor(rows: int, width: int, seed: int, unit: float, memory: Mapping[str, FloatArray]) -> FloatArray:
    """A left factor with strengths: Gaussian of deviation √unit, or an earlier U completed with such columns.

    Orthonormal columns say nothing about strengths, so they get the length of random ones.
    """
    random: FloatArray = np.sqrt(unit) * _gaussian(rows, width, seed)
    warm = memory.get(WARM, np.zeros((rows, 0)))[:, :width]
    if warm.size and np.allclose(np.linalg.norm(warm, axis=0), 1.0):
        warm = np.sqrt(unit * rows) * warm
    return np.concatenate([warm, random[:, warm.shape[1] :]], axis=1)


def _gaussian(rows: int, width: int, seed: int) -> FloatArray:
    return np.random.default_rng((START, seed)).standard_normal((rows, width))

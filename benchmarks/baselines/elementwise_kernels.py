"""The elementwise parts of the baselines, compiled where numba is installed (the extra `fast`), else by numpy.

Ours has such loops; a yardstick without them would be too easily beaten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dcfpca.rpca.kernels.compiled_loops import RELAXED, compiler
from dcfpca.rpca.method import FloatArray


@dataclass(frozen=True, slots=True)
class Sweeps:
    """Kernels on a block of rows; each returns the sum of the squared residuals there."""

    # (M, L, threshold, out): out ← M where |M − L| ≤ threshold, else L. Sums (M − L)² over the former.
    clean: Callable[[FloatArray, FloatArray, float, FloatArray], float]
    # (M, L, dual, target, threshold, growth), see `alm`: T = M − L + dual, C = clip(T, ±threshold); sums (C − dual)²,
    # then dual ← C/growth and target ← M − T + C + dual.
    multiply: Callable[[FloatArray, FloatArray, FloatArray, FloatArray, float, float], float]


@lru_cache(maxsize=1)
def sweeps() -> Sweeps:
    """The compiled loops, or their numpy versions without numba."""
    compile_one = compiler()
    if compile_one is None:
        return Sweeps(clean, multiply)
    return Sweeps(compile_one(_clean, RELAXED), compile_one(_multiply, RELAXED))


def clean(M: FloatArray, L: FloatArray, threshold: float, out: FloatArray) -> float:
    """See `Sweeps`."""
    gap = M - L
    gap *= np.abs(gap) <= threshold
    np.add(L, gap, out=out)
    return float(np.vdot(gap, gap))


def multiply(
    M: FloatArray, L: FloatArray, dual: FloatArray, target: FloatArray, threshold: float, growth: float
) -> float:
    """See `Sweeps`."""
    T = M - L
    T += dual
    C = np.clip(T, -threshold, threshold)
    gap = C - dual
    np.multiply(C, 1.0 / growth, out=dual)
    np.subtract(M, T, out=T)
    T += C
    np.add(T, dual, out=target)
    return float(np.vdot(gap, gap))


def _clean(M: FloatArray, L: FloatArray, threshold: float, out: FloatArray) -> float:
    squared = 0.0
    for i in range(M.shape[0]):
        for j in range(M.shape[1]):
            gap = M[i, j] - L[i, j]
            inside = abs(gap) <= threshold
            out[i, j] = M[i, j] if inside else L[i, j]
            squared += gap * gap if inside else 0.0
    return squared


def _multiply(
    M: FloatArray, L: FloatArray, dual: FloatArray, target: FloatArray, threshold: float, growth: float
) -> float:
    squared, shrink = 0.0, 1.0 / growth
    for i in range(M.shape[0]):
        for j in range(M.shape[1]):
            T = M[i, j] - L[i, j] + dual[i, j]
            C = min(max(T, -threshold), threshold)
            gap = C - dual[i, j]
            squared += gap * gap
            dual[i, j] = C * shrink
            target[i, j] = M[i, j] - T + C + C * shrink
    return squared

"""The elementwise part of a local pass as one compiled loop, where numba is installed (the extra `fast`).

Each function has a numpy twin in `kernels`, which is the reference and gives the same answer without numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.exchange import FloatArray

# Early rounds are worked in single precision: what they are about is far above its rounding.
Work = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Fused:
    """The compiled loops."""

    # (M, L, threshold, a, keep, relaxation): L ← keep·L + ω ψ(M − L), where ψ is 0 for what is missing in M.
    sweep: Callable[[Work, Work, float, float, float, float], None]
    # (M, L, rows, threshold, a, unit, lowest, histogram) → (Σ(ψ/unit)², kept), counting sizes into the histogram.
    count: Callable[[Work, Work, NDArray[np.intp], float, float, float, int, FloatArray], tuple[float, float]]


@lru_cache(maxsize=1)
def fused() -> Fused | None:
    """The compiled loops, or None without numba. Imported on first use: numba is slow to load."""
    try:
        import numba  # noqa: PLC0415
    except ImportError:
        return None

    def compiled(function: Callable[..., object]) -> Callable[..., object]:
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy")(function)
        except RuntimeError:  # nowhere to keep the compiled code, as in a read-only image
            return numba.njit(nogil=True, error_model="numpy")(function)

    return Fused(compiled(_sweep), compiled(_count))  # type: ignore[arg-type]


def _sweep(M: Work, L: Work, threshold: float, a: float, keep: float, relaxation: float) -> None:
    reach, slope = a * threshold, 1.0 / (a - 1.0)
    for i in range(M.shape[0]):
        for j in range(M.shape[1]):
            r = M[i, j] - L[i, j]
            size = abs(r)
            room = (reach - size) * slope
            # Written as selects, which the compiler turns into vector code; NaN fails every comparison and pulls 0.
            room = room if room > 0.0 else 0.0
            pull = size if size < room else room
            L[i, j] = keep * L[i, j] + relaxation * (pull if r > 0.0 else -pull)


def _count(
    M: Work,
    L: Work,
    rows: NDArray[np.intp],
    threshold: float,
    a: float,
    unit: float,
    lowest: int,
    histogram: FloatArray,
) -> tuple[float, float]:
    reach, slope, last = a * threshold, 1.0 / (a - 1.0), histogram.shape[0] - 1
    pulled = kept = 0.0
    for i in rows:
        for j in range(M.shape[1]):
            size = abs(M[i, j] - L[i, j])
            if not size >= 0.0:
                continue
            pull = min(size, max((reach - size) * slope, 0.0)) / unit
            pulled += pull * pull
            if pull * unit >= 0.5 * size:
                kept += 1.0
            if size > 0.0:
                exponent = math.frexp(size / unit)[1]
                histogram[min(max(exponent - lowest, 0), last)] += 1.0
    return pulled, kept

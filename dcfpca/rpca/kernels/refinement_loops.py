"""The elementwise parts of a refinement round as loops, compiled where numba is installed; numpy does the same in
`refinement.alternating_fit` and `refinement.refine`, pass by pass over memory. Entries that are NaN are unobserved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.kernels.compiled_loops import RELAXED, compiler
from dcfpca.rpca.method import FloatArray, WorkArray

TUKEY = 4.685  # 95 % efficiency under normal noise
HUBER = 1.345
_MANTISSA, _ONE = np.int64((1 << 52) - 1), np.int64(1023 << 52)


@dataclass(frozen=True, slots=True)
class RefinementLoops:
    """The compiled loops."""

    influences: Callable[[WorkArray, WorkArray, FloatArray, bool, bool], None]
    losses: Callable[[FloatArray, FloatArray, FloatArray, FloatArray], None]
    weighted: Callable[[FloatArray, FloatArray, FloatArray, NDArray[np.bool_], FloatArray], None]
    count_sides: Callable[[FloatArray, FloatArray, float, int, FloatArray, FloatArray, FloatArray], None]


def influences(X: WorkArray, L: WorkArray, noise: FloatArray, huber: bool, weigh: bool) -> None:
    """L ← ψ(X − L), Huber's or Tukey's; or, to `weigh`, ψ(x)/x."""
    number = L.dtype.type
    one, zero = number(1.0), number(0.0)
    for i in range(L.shape[0]):
        reach = number((HUBER if huber else TUKEY) * noise[i])
        per_reach = one / reach
        for j in range(L.shape[1]):
            r = X[i, j] - L[i, j]
            if huber:
                weight = reach / max(abs(r), reach)
            else:
                x = r * per_reach
                room = one - x * x
                room = room if room > zero else zero
                weight = room * room
            influence = weight if weigh else weight * r
            L[i, j] = influence if not np.isnan(r) else zero


def losses(M: FloatArray, L: FloatArray, noise: FloatArray, loss: FloatArray) -> None:
    """Add to each column's loss: Tukey's, with ρ'' = 1 at zero, in squared units of the data."""
    for i in range(L.shape[0]):
        reach = TUKEY * noise[i]
        most = reach * reach / 6.0
        for j in range(L.shape[1]):
            x = (M[i, j] - L[i, j]) / reach
            room = max(1.0 - x * x, 0.0)
            loss[j] += most * (1.0 - room * room * room) if not np.isnan(x) else 0.0


def weighted(M: FloatArray, L: FloatArray, noise: FloatArray, calm: NDArray[np.bool_], weight: FloatArray) -> None:
    """L ← ψ(M − L)/noise of calm columns, and 0 of the others; adds to the rows' sums of weights."""
    for i in range(L.shape[0]):
        per_noise, per_reach, total = 1.0 / noise[i], 1.0 / (TUKEY * noise[i]), 0.0
        for j in range(L.shape[1]):
            r = M[i, j] - L[i, j]
            x = r * per_reach
            room = max(1.0 - x * x, 0.0)
            room = room * room if calm[j] and not np.isnan(r) else 0.0
            total += room
            L[i, j] = r * per_noise * room if not np.isnan(r) else 0.0
        weight[i] += total


def count_sides(
    off: FloatArray, unit: FloatArray, least: float, octaves: int, steps: FloatArray, over: FloatArray,
    under: FloatArray,
) -> None:  # fmt: skip
    """Count sizes by rows and bins, of what lies above `least` units and of the rest. For `steps` see `Bins`."""
    last = over.shape[1] - 1
    for i in range(off.shape[0]):
        per_unit = 1.0 / unit[i]
        for j in range(off.shape[1]):
            x = off[i, j] * per_unit
            if np.isnan(x):
                continue
            bits = np.float64(abs(x)).view(np.int64)
            place = ((bits >> 52) - 1023 + octaves) * steps.shape[0] - 1
            mantissa = np.int64((bits & _MANTISSA) | _ONE).view(np.float64)
            for step in steps:
                place += mantissa > step
            place = min(max(place, 0), last)
            if x > least:
                over[i, place] += 1.0
            else:
                under[i, place] += 1.0


@lru_cache(maxsize=1)
def refinement_loops() -> RefinementLoops | None:
    """The compiled loops, or None without numba; fixed for the process."""
    compile_one = compiler()
    if compile_one is None:
        return None
    kinds = (influences, losses, weighted, count_sides)
    return RefinementLoops(*(partial(_called, compile_one(loop, RELAXED)) for loop in kinds))


def _called(loop: Callable[..., None], *given: Any) -> None:
    """Call a loop with arrays of the one kind that it is compiled for; what it writes to is of that kind."""
    loop(*(np.require(one, requirements=("C", "W")) if isinstance(one, np.ndarray) else one for one in given))


def load_refinement_loops() -> None:
    """Call every loop once, which loads it from numba's cache or compiles it; without numba it does nothing."""
    if (loops := refinement_loops()) is None:
        return
    M, one, counts = np.zeros((2, 2)), np.ones(2), np.zeros((2, 4))
    for precision in (np.float32, np.float64):
        X: WorkArray = np.zeros((2, 2), precision)
        loops.influences(X, X.copy(), one, True, True)
    loops.losses(M, M, one, one.copy())
    loops.weighted(M, M.copy(), one, np.ones(2, np.bool_), one.copy())
    loops.count_sides(M, one, 0.0, 1, one, counts, counts.copy())

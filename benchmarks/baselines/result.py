"""The result type of the baselines, and the checks on their input matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray

# Called after every iteration with its number (from 1), L and S. The arrays are formed only if somebody looks.
Observe = Callable[[int, FloatArray, FloatArray], None]


class Ending(Enum):
    """The outcome of a baseline. The value is the sentence to show."""

    CONVERGED = "converged: what neither L nor S explains is below the tolerance"
    OUT_OF_ITERATIONS = "stopped at the limit of iterations before reaching the tolerance"
    DIVERGED = "diverged: the factors are no longer finite; lower the learning rate"


@dataclass(frozen=True, slots=True, eq=False)
class BaselineResult:
    """M ≈ L + S. `rank` is the one found (or the one that was given), `residual` is ‖M − L − S‖/‖M‖."""

    L: FloatArray
    S: FloatArray
    rank: int
    iterations: int
    residual: float
    outcome: Ending


def complete_matrix(M: FloatArray) -> FloatArray:
    """M in float64 and row-major; raises BadInput when it cannot be used."""
    M = np.ascontiguousarray(M, dtype=np.float64)
    if M.ndim != 2 or M.size == 0:
        raise BadInput(f"A baseline needs a matrix, not an array of shape {M.shape}.")
    if not np.isfinite(M).all():
        raise BadInput(
            "The centralized baselines need every entry: this matrix holds NaN or infinite values.",
            "Use the method subspace or gradient, which treat NaN as unobserved.",
        )
    return M


def fitting_rank(rank: int, M: FloatArray) -> None:
    """Refuse a rank that no matrix of this shape has."""
    if not 1 <= rank <= min(M.shape):
        raise BadInput(f"Rank {rank} does not fit a matrix of shape {M.shape}.")

"""The loops of a local pass, compiled where numba is installed (the extra `fast`), else their numpy twins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca import loops, reference
from dcfpca.rpca.exchange import FloatArray
from dcfpca.rpca.work import Flags, Work

# Sums may be taken in any order and products fused into them; NaN and Inf keep their meaning.
RELAXED = {"reassoc", "contract", "nsz"}


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops by the names they have in `loops`, where each says what it does."""

    sweep: Callable[[Work, Work, float, float, float, float], None]
    mark: Callable[[Work, Work, Flags, float, float, float], None]
    amend: Callable[[Flags, Work, Work, Work, Work, Work], None]
    count: Callable[[Work, Work, NDArray[np.intp], float, float, float, int, FloatArray], tuple[float, float]]
    outliers_by_column: Callable[[Work, Work, float, NDArray[np.int64]], tuple[int, float]]
    gather_outliers: Callable[[Work, Work, float, float, NDArray[np.int64], NDArray[np.int32], FloatArray], float]


@lru_cache(maxsize=1)
def fused() -> Loops:
    """The loops to use. Imported on first use: numba is slow to load."""
    return compiled() or in_numpy()


def in_numpy() -> Loops:
    """The references."""
    return Loops(**{field.name: getattr(reference, field.name) for field in fields(Loops)})


@lru_cache(maxsize=1)
def compiled() -> Loops | None:
    """The compiled loops, or None without numba."""
    try:
        import numba  # noqa: PLC0415
    except ImportError:
        return None

    def compile_one(function: Callable[..., object]) -> Callable[..., object]:
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=RELAXED)(function)
        except RuntimeError:  # nowhere to keep the compiled code, as in a read-only image
            return numba.njit(nogil=True, error_model="numpy", fastmath=RELAXED)(function)

    return Loops(**{field.name: compile_one(getattr(loops, field.name)) for field in fields(Loops)})  # type: ignore[arg-type]

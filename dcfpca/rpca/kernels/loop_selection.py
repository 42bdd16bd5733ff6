"""The loops of a local pass, compiled where numba is installed (the extra `fast`), else in numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.kernels import elementwise_loops, numpy_loops
from dcfpca.rpca.kernels.array_types import Directions, WorkArray
from dcfpca.rpca.kernels.numba_compiler import RELAXED, STRICT, compiler
from dcfpca.rpca.method import FloatArray

AWAITED_WIDTHS: set[int] = set()
"""Numbers of directions whose own loops are being compiled; see `loop_loading.await_thin_loops`."""
ROUNDING = {"add_compensated"}  # about rounding: the compiler must keep to the order of its operations


@dataclass(frozen=True, slots=True)
class Loops:
    """The loops, under the names they have in `elementwise_loops`, where they are documented."""

    sweep: Callable[[WorkArray, WorkArray, float, float, float, float], None]
    count: Callable[[WorkArray, WorkArray, NDArray[np.intp], float, float, float, int, FloatArray], tuple[float, float]]
    influence_pass: Callable[[WorkArray, WorkArray, WorkArray, float, float, WorkArray, WorkArray, Directions], None]
    thin_product: Callable[[WorkArray, WorkArray, WorkArray, Directions], None]
    outliers: Callable[
        [WorkArray, FloatArray, float, float],
        tuple[NDArray[np.int32], NDArray[np.int32], FloatArray, int, float],
    ]
    add_compensated: Callable[[FloatArray, FloatArray, FloatArray], None]


@lru_cache(maxsize=1)
def active_loops() -> Loops:
    """The compiled loops where numba is installed, else the numpy ones; fixed for the process."""
    return compiled_loops() or loops_in_numpy()


def loops_in_numpy() -> Loops:
    """The numpy loops."""
    return Loops(**{field.name: getattr(numpy_loops, field.name) for field in fields(Loops)})


@lru_cache(maxsize=1)
def compiled_loops() -> Loops | None:
    """The compiled loops, or None without numba."""
    compile_one = compiler()
    if compile_one is None:
        return None
    from dcfpca.rpca.kernels import simd_pass  # noqa: PLC0415 — it needs numba

    homes = {field.name: simd_pass if hasattr(simd_pass, field.name) else elementwise_loops for field in fields(Loops)}
    freedoms = {name: STRICT if name in ROUNDING else RELAXED for name in homes}
    return Loops(**{name: compile_one(getattr(home, name), freedoms[name]) for name, home in homes.items()})

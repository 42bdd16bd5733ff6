"""The loops of a local pass, compiled where numba is installed (the extra `fast`), else in numpy. They are loaded
before they are needed, so that no round waits for a compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.column_blocks import LINE, read_only
from dcfpca.rpca.kernels import elementwise_loops, numpy_loops
from dcfpca.rpca.kernels.numpy_loops import Directions
from dcfpca.rpca.method import FloatArray, WorkArray

THIN_WIDTH = 6  # up to this many directions, passes that never form L are faster than matrix products
PRECISIONS = (np.float32, np.float64)
AWAITED_WIDTHS: set[int] = set()
"""Numbers of directions whose own loops are being compiled; see `await_thin_loops`."""
_loaded: set[int] = set()

Loop = Callable[..., Any]
# What a compiler may do to the numbers of a loop: nothing; or fuse products into sums, and take sums in any order.
STRICT: frozenset[str] = frozenset()
RELAXED = frozenset({"reassoc", "contract", "nsz"})  # NaN and Inf keep their meaning


def compiler() -> Callable[[Loop, frozenset[str]], Loop] | None:
    """The function that compiles a loop with these freedoms; None without numba, which is imported on demand."""
    try:
        import numba  # noqa: PLC0415
    except ImportError:
        return None

    def compile_one(loop: Loop, freedoms: frozenset[str]) -> Loop:
        fastmath = set(freedoms)
        try:
            return numba.njit(cache=True, nogil=True, error_model="numpy", fastmath=fastmath)(loop)
        except RuntimeError:  # no place to keep the compiled code, as in a read-only image
            return numba.njit(nogil=True, error_model="numpy", fastmath=fastmath)(loop)

    return compile_one


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
    return Loops(**{name: compile_one(getattr(home, name), RELAXED) for name, home in homes.items()})


def load_loops(widths: Iterable[int] = ()) -> None:
    """Call every loop once, in both precisions; those of thin passes, of which each width has its own, for these.

    Loads them from numba's cache or compiles them; without numba it does next to nothing.
    """
    loops, M = active_loops(), read_only(np.zeros((2, 2)))
    for precision in PRECISIONS:
        L: WorkArray = np.zeros((2, 2), precision)
        loops.sweep(M, L, 1.0, 2.0, 1.0, 1.0)
        loops.count(M, L, np.arange(2), 1.0, 2.0, 1.0, -2, np.zeros(4))
    loops.outliers(M, np.zeros((2, 2)), 1.0, 2.0)
    for width in widths:
        load_thin_loops(width)


def await_thin_loops(widths: Iterable[int]) -> None:
    """Until `load_thin_loops` has the loops of a width, passes over that many directions are matrix products, as wider
    ones are, and none waits for a compiler."""
    AWAITED_WIDTHS.update(width for width in widths if width not in _loaded)


def load_thin_loops(width: int) -> None:
    """The loops of passes over this many directions, in both precisions; wider ones are matrix products."""
    if not 0 < width <= THIN_WIDTH:
        return
    loops, directions = active_loops(), (0,) * width
    for precision in PRECISIONS:
        line = LINE // np.dtype(precision).itemsize
        M, influences = read_only(np.zeros((4, line))), np.zeros((4, line), precision)
        U, start = np.zeros((4, width), precision), np.zeros((line, width), precision)
        loops.influence_pass(M, U, start, 1.0, 2.0, influences, start.copy(), directions)
        loops.thin_product(influences, np.zeros((width, line), precision), U, directions)
    _loaded.add(width)
    AWAITED_WIDTHS.discard(width)


def compiled_here() -> int:
    """How many versions of loops this process has compiled, because numba's cache did not have them."""
    stats = [getattr(getattr(compiled_loops(), field.name, None), "stats", None) for field in fields(Loops)]
    return sum(sum(one.cache_misses.values()) for one in stats if one is not None)

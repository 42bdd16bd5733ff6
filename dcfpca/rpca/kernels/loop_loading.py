"""Loads the compiled loops before they are needed, so that no round waits for a compiler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import numpy as np

from dcfpca.rpca.kernels.array_types import LINE, WorkArray
from dcfpca.rpca.kernels.loop_selection import AWAITED_WIDTHS, Loops, active_loops, compiled_loops
from dcfpca.rpca.kernels.scratch_buffers import read_only
from dcfpca.rpca.kernels.step_parameters import THIN_WIDTH
from dcfpca.rpca.kernels.step_sums import HISTOGRAM_BINS, HISTOGRAM_LOWEST

PRECISIONS = (np.float32, np.float64)
_loaded: set[int] = set()


def load_loops(widths: Iterable[int] = ()) -> None:
    """Call every loop once, in both precisions; those of thin passes, of which each width has its own, for these.

    Loads them from numba's cache or compiles them; without numba it does next to nothing.
    """
    loops, M = active_loops(), read_only(np.zeros((2, 2)))
    for precision in PRECISIONS:
        L: WorkArray = np.zeros((2, 2), precision)
        loops.sweep(M, L, 1.0, 2.0, 1.0, 1.0)
        loops.count(M, L, np.arange(2), 1.0, 2.0, 1.0, HISTOGRAM_LOWEST, np.zeros(HISTOGRAM_BINS))
    loops.add_compensated(np.zeros(2), np.zeros(2), np.zeros(2))
    loops.outliers(M, np.zeros((2, 2)), 1.0, 2.0)
    for width in widths:
        load_thin_loops(width)


def await_thin_loops(widths: Iterable[int]) -> None:
    """Until `load_thin_loops` has those of a width, passes over so many directions are matrix products, as wider ones
    are, and none waits for a compiler."""
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
    loops = compiled_loops()
    return 0 if loops is None else sum(_misses(getattr(loops, field.name)) for field in fields(Loops))


def _misses(loop: object) -> int:
    stats = getattr(loop, "stats", None)
    return 0 if stats is None else sum(stats.cache_misses.values())

"""Compensated sums of updates, whose result does not depend on the order of arrival."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dcfpca.rpca.kernels.numpy_loops import add_compensated
from dcfpca.rpca.method import FloatArray

Add = Callable[[FloatArray, FloatArray, FloatArray], None]


class OrderIndependentSum:
    """A float64 vector that accumulates the rounding error of each addition beside it (Knuth's two-sum).

    The order of arrival then affects, if anything, the thirty-second digit, which the sum does not have. `add` may be
    the compiled form of the loop, which gives the same bits; an aggregator does without a compiler.
    """

    def __init__(self, size: int, add: Add = add_compensated) -> None:
        self._sum: FloatArray = np.zeros(size)
        self._rest: FloatArray = np.zeros(size)
        self._add = add

    def add(self, piece: FloatArray, start: int = 0) -> None:
        """Add these numbers from this place on."""
        place = slice(start, start + piece.size)
        self._add(self._sum[place], self._rest[place], piece)

    def total(self) -> FloatArray:
        """The sum so far."""
        with np.errstate(invalid="ignore"):
            total: FloatArray = self._sum + self._rest
        if np.isfinite(total).all():
            return total
        # Once Inf or NaN is in, the sum says so by itself; the rest would only blur it.
        return np.where(np.isfinite(self._sum), total, self._sum)

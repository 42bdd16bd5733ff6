"""Compensated sums of updates, whose result does not depend on the order of arrival."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray

STRETCH = 32_768  # numbers that stay in cache through the steps of an addition; fewer cost more in calls


class OrderIndependentSum:
    """A float64 vector that accumulates the rounding error of each addition beside it (Knuth's two-sum).

    The order of arrival then affects the thirty-second digit at most, and the sum has only sixteen.
    """

    def __init__(self, size: int) -> None:
        self._sum: FloatArray = np.zeros(size)
        self._rest: FloatArray = np.zeros(size)

    def add(self, piece: FloatArray, start: int = 0) -> None:
        """Add these numbers from this place on, in stretches that stay in cache."""
        room = np.empty((3, min(piece.size, STRETCH)))
        with np.errstate(invalid="ignore", over="ignore"):  # an update that is not finite is for the reader to handle
            for first in range(0, piece.size, STRETCH):
                more = piece[first : first + STRETCH]
                cut = slice(start + first, start + first + more.size)
                before, (after, added, lost) = self._sum[cut], room[:, : more.size]
                np.add(before, more, out=after)
                np.subtract(after, before, out=added)
                np.subtract(after, added, out=lost)
                np.subtract(before, lost, out=lost)
                np.subtract(more, added, out=added)
                lost += added
                self._rest[cut] += lost
                before[:] = after

    def total(self) -> FloatArray:
        """The sum so far."""
        with np.errstate(invalid="ignore"):
            total: FloatArray = self._sum + self._rest
        if np.isfinite(total).all():
            return total
        # Once it contains Inf or NaN, the sum shows that by itself; the compensation would only blur it.
        return np.where(np.isfinite(self._sum), total, self._sum)

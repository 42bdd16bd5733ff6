"""Sums of updates that come out the same whoever's update arrived first."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.exchange import FloatArray


class OrderlessSum:
    """A float64 vector that keeps what each addition rounds off beside it (Knuth's two-sum).

    The order of arrival then shows, if at all, in the thirty-second digit, and not in the sum.
    """

    def __init__(self, size: int) -> None:
        self._sum: FloatArray = np.zeros(size)
        self._rest: FloatArray = np.zeros(size)

    def add(self, piece: FloatArray, start: int = 0) -> None:
        """Add these numbers from this place on."""
        place = slice(start, start + piece.size)
        before = self._sum[place]
        with np.errstate(invalid="ignore", over="ignore"):  # an update that is not finite is the reader's affair
            after = before + piece
            added = after - before
            self._rest[place] += (before - (after - added)) + (piece - added)
        self._sum[place] = after

    def total(self) -> FloatArray:
        """The sum so far."""
        # Once Inf or NaN is in, the sum says so by itself; the rest would only blur it.
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(self._sum), self._sum + self._rest, self._sum)

"""Sums of updates that come out the same whoever's update arrived first."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.exchange import FloatArray

STRETCH = 8192  # numbers that stay in cache through the steps of an addition


class OrderlessSum:
    """A float64 vector that keeps what each addition rounds off beside it (Knuth's two-sum).

    The order of arrival then shows, if at all, in the thirty-second digit, and not in the sum.
    """

    def __init__(self, size: int) -> None:
        self._sum: FloatArray = np.zeros(size)
        self._rest: FloatArray = np.zeros(size)
        self._room: FloatArray = np.empty((3, min(size, STRETCH)))

    def add(self, piece: FloatArray, start: int = 0) -> None:
        """Add these numbers from this place on."""
        with np.errstate(invalid="ignore", over="ignore"):  # an update that is not finite is the reader's affair
            for first in range(0, piece.size, STRETCH):
                self._add_stretch(piece[first : first + STRETCH], start + first)

    def _add_stretch(self, piece: FloatArray, start: int) -> None:
        """rest += (before − (after − added)) + (piece − added), with after = before + piece, added = after − before."""
        before, rest = self._sum[start : start + piece.size], self._rest[start : start + piece.size]
        after, added, lost = self._room[:, : piece.size]
        np.add(before, piece, out=after)
        np.subtract(after, before, out=added)
        np.subtract(after, added, out=lost)
        np.subtract(before, lost, out=lost)
        np.subtract(piece, added, out=added)
        lost += added
        rest += lost
        before[:] = after

    def total(self) -> FloatArray:
        """The sum so far."""
        # Once Inf or NaN is in, the sum says so by itself; the rest would only blur it.
        with np.errstate(invalid="ignore"):
            return np.where(np.isfinite(self._sum), self._sum + self._rest, self._sum)

"""Stops local work that nobody waits for any more: columns refuse to be read once the work is cancelled.

Every local step reads its columns block by block, so a cancelled step ends before the next block. How long one block
takes is bounded by the passes that the site's policy allows (`max_local_passes`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from dcfpca.errors import DcfpcaError
from dcfpca.rpca.method import Columns, FloatArray


class WorkCancelled(DcfpcaError):
    """The local work was cancelled: the run ended, the site withdrew, or the daemon stops."""


class Cancellation:
    """A flag that one thread sets and the threads that compute look at. It is never taken back."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def cancel(self) -> None:
        """Cancel the work; may be called from any thread and more than once."""
        self._event.set()

    def check(self) -> None:
        """Raise WorkCancelled once the work is cancelled."""
        if self._event.is_set():
            raise WorkCancelled("the local work was cancelled")


@dataclass(frozen=True, slots=True, eq=False)
class CancellableColumns:
    """Columns that raise WorkCancelled instead of being read once the work is cancelled."""

    columns: Columns
    cancellation: Cancellation

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.columns.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        self.cancellation.check()
        return self.columns.read(start, stop)

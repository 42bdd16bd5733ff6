"""Progress and cancellation of long local work.

Every local step reads its columns block by block: progress is counted there, as a percentage and nothing else about the
data, and a cancelled step ends before the next block. How long one block takes is bounded by the passes that the site's
policy allows (`max_local_passes`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from dcfpca.errors import DcfpcaError
from dcfpca.rpca.method import Columns, FloatArray

REPORT_SECONDS = 5.0


class WorkCancelled(DcfpcaError):
    """The local work was cancelled: the run ended, the site withdrew, or the daemon stops."""


class Cancellation:
    """A flag that one thread sets, once, and the computing threads check."""

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        """Cancel the work; may be called from any thread and more than once."""
        self.is_cancelled = True

    def check(self) -> None:
        """Raise WorkCancelled once the work is cancelled."""
        if self.is_cancelled:
            raise WorkCancelled("the local work was cancelled")


class ProgressMeter:
    """Counts columns as they are read and calls `report` with the percentage, at most once in `every` seconds."""

    def __init__(
        self, report: Callable[[int], None], every: float = REPORT_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report, self._every, self._clock = report, every, clock
        self._wanted, self._done, self._last = 1, 0, clock()
        self._lock = Lock()

    def begin(self, columns: int) -> None:
        """Start counting towards this many columns, over all passes."""
        self._wanted, self._done, self._last = max(columns, 1), 0, self._clock()

    def advance(self, columns: int) -> None:
        """Count this many more columns; may be called from several threads."""
        with self._lock:
            self._done += columns
            now = self._clock()
            if now - self._last >= self._every:
                self._last = now
                self._report(min(99, 100 * self._done // self._wanted))


@dataclass(frozen=True, slots=True, eq=False)
class MeteredColumns:
    """Columns that count what is read from them, if there is a meter, and raise WorkCancelled once cancelled."""

    columns: Columns
    meter: ProgressMeter | None = None
    cancellation: Cancellation = field(default_factory=Cancellation)
    shape: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", self.columns.shape)

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        if self.cancellation.is_cancelled:
            self.cancellation.check()
        if self.meter is not None:
            self.meter.advance(stop - start)
        return self.columns.read(start, stop)

"""Progress of long local work: a percentage at intervals, and nothing else about the data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from dcfpca.methods import method_of
from dcfpca.rpca.method import Columns, FloatArray
from dcfpca.spec import RunSpec
from participant.engine.cancellation import Cancellation

REPORT_SECONDS = 5.0


class ProgressMeter:
    """Counts columns as they are read and calls `report` with the percentage, at most once in `every` seconds."""

    def __init__(
        self,
        report: Callable[[int], None],
        every: float = REPORT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
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


def passes_of(spec: RunSpec) -> int:
    """The number of times a local step reads each column."""
    return method_of(spec).reads_per_round


@dataclass(frozen=True, slots=True, eq=False)
class MeteredColumns:
    """Columns whose reading is counted, and which raise WorkCancelled once the work is cancelled."""

    columns: Columns
    meter: ProgressMeter
    cancellation: Cancellation = field(default_factory=Cancellation)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.columns.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        self.cancellation.check()
        self.meter.advance(stop - start)
        return self.columns.read(start, stop)

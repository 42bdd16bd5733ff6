"""How far long local work has come: a percentage, told now and then, and nothing else about the data."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from dcfpca.methods import method_of
from dcfpca.rpca.method import Columns, FloatArray
from dcfpca.spec import RunSpec

TELL_SECONDS = 5.0


class Meter:
    """Counts columns as they are read and tells the percentage, at most once in `every` seconds."""

    def __init__(
        self,
        told: Callable[[int], None],
        every: float = TELL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._told, self._every, self._clock = told, every, clock
        self._wanted, self._done, self._last = 1, 0, clock()
        self._lock = Lock()

    def begin(self, columns: int) -> None:
        """Work on so many columns begins, passes counted."""
        self._wanted, self._done, self._last = max(columns, 1), 0, self._clock()

    def advance(self, columns: int) -> None:
        """So many columns more are read."""
        with self._lock:  # parts of the site may be read at once
            self._done += columns
            now = self._clock()
            if now - self._last >= self._every:
                self._last = now
                self._told(min(99, 100 * self._done // self._wanted))


def passes_of(spec: RunSpec) -> int:
    """How often a local step reads each column."""
    return method_of(spec).reads_per_round


@dataclass(frozen=True, slots=True, eq=False)
class MeteredColumns:
    """Columns whose reading is counted."""

    columns: Columns
    meter: Meter

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.columns.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1."""
        self.meter.advance(stop - start)
        return self.columns.read(start, stop)

"""A watchdog that reports when nothing has happened for a while, so that a long wait does not look like a hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


class SilenceWatchdog(AbstractContextManager["SilenceWatchdog"]):
    """Calls `report` with the seconds since the last `reset`, every `every` seconds, from a thread of its own."""

    def __init__(self, report: Callable[[float], None], every: float) -> None:
        self._report = report
        self._every = every
        self._last_reset = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="silence-watchdog", daemon=True)

    def __enter__(self) -> SilenceWatchdog:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def reset(self) -> None:
        """Start counting again from now."""
        self._last_reset = time.monotonic()

    def _run(self) -> None:
        while not self._stopped.wait(self._every):
            silence = time.monotonic() - self._last_reset
            if silence >= self._every:
                self._report(silence)

"""Says something when nothing has been heard for a while, so that a wait is never silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType


class Reminder(AbstractContextManager["Reminder"]):
    """Calls `remind` with the seconds of silence, every so often, until something is heard."""

    def __init__(self, remind: Callable[[float], None], every: float) -> None:
        self._remind = remind
        self._every = every
        self._heard = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reminder", daemon=True)

    def __enter__(self) -> Reminder:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def heard(self) -> None:
        """Something was heard: silence begins anew."""
        self._heard = time.monotonic()

    def _watch(self) -> None:
        while not self._over.wait(self._every):
            silence = time.monotonic() - self._heard
            if silence >= self._every:
                self._remind(silence)

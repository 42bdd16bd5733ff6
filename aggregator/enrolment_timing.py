"""When an open enrolment may close before its deadline: everybody who is connected has answered, and it is quiet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aggregator.presence import Presence
from aggregator.run import events
from aggregator.run.enrolment import fewest
from aggregator.run.state import Status
from aggregator.runner import Runner

QUIET_SECONDS = 1.0
"""A consortium's daemons start within moments of each other; the first ones must not make a run of their own."""


class Quiet:
    """Watches one enrolling run without a fixed cohort."""

    def __init__(self, runner: Runner, presence: Presence, now: Callable[[], float]) -> None:
        self._runner, self._presence, self._now = runner, presence, now
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Something changed: start waiting for quiet anew, or stop waiting."""
        self.cancel()
        if self._complete():
            self._timer = asyncio.get_running_loop().call_later(QUIET_SECONDS, self._close)

    def cancel(self) -> None:
        """Stop waiting."""
        if self._timer:
            self._timer.cancel()

    def _complete(self) -> bool:
        run, here = self._runner.run, self._presence.names()
        if run.status is not Status.ENROLLING or self._runner.spec.participants:
            return False
        return len(here) >= fewest(self._runner.spec) and here <= run.enrolled.keys() | run.refusals.keys()

    def _close(self) -> None:
        if self._complete():
            self._runner.tell(events.EnrolmentClosed(at=self._now()))

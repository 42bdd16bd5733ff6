"""Closes the enrolment of a run whose spec names no participants early, once everyone who is connected has answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aggregator.presence import Presence
from aggregator.run import events
from aggregator.run.enrolment import fewest_enrolled
from aggregator.run.state import Status
from aggregator.runner import Runner

SETTLE_SECONDS = 1.0
"""The daemons of a consortium start within moments of each other; the first ones must not close the enrolment."""


class EnrolmentTimer:
    """Closes the enrolment of one run SETTLE_SECONDS after its last change, if it is complete."""

    def __init__(self, runner: Runner, presence: Presence, now: Callable[[], float]) -> None:
        self._runner, self._presence, self._now = runner, presence, now
        self._timer: asyncio.TimerHandle | None = None

    def restart(self) -> None:
        """Start the wait again after a change; without effect while the enrolment is incomplete."""
        self.cancel()
        if self._is_complete():
            self._timer = asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._close)

    def cancel(self) -> None:
        """Stop the wait."""
        if self._timer:
            self._timer.cancel()

    def _is_complete(self) -> bool:
        run, connected = self._runner.run, self._presence.names()
        if run.status is not Status.ENROLLING or self._runner.spec.participants:
            return False
        answered = run.enrolled.keys() | run.refusals.keys()
        return len(connected) >= fewest_enrolled(self._runner.spec) and connected <= answered

    def _close(self) -> None:
        if self._is_complete():
            self._runner.tell(events.EnrolmentClosed(at=self._now()))

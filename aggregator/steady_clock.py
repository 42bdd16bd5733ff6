"""A clock that tells the time of day and never goes back, so that no duration is negative."""

from __future__ import annotations

import time
from collections.abc import Callable

SLEW = 0.05
"""How much faster or slower than real time the clock runs while it catches up with a wall clock that was set."""


class SteadyClock:
    """Unix seconds that advance with the monotonic clock.

    When the wall clock is set, forward or back, the difference is made up gradually: durations and deadlines are then
    wrong by SLEW at most, whatever the step.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._told, self._at = wall(), monotonic()

    def now(self) -> float:
        """The present time; never earlier than what was told before."""
        at = self._monotonic()
        passed = max(0.0, at - self._at)
        behind = self._wall() - (self._told + passed)
        self._told += passed + min(max(behind, -SLEW * passed), SLEW * passed)
        self._at = at
        return self._told

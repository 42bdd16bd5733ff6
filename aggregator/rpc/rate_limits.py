"""How much one identity may ask: a rate with a burst, and so many calls at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aggregator.config import Limits
from aggregator.rpc.status_errors import Overloaded

TELL_SECONDS = 10.0
"""How often it is told of one identity that it is over its limits."""


@dataclass(slots=True)
class _Account:
    tokens: float
    at: float
    open: int = 0
    told_at: float = -math.inf


class Meter:
    """A token bucket and a count of open calls per identity."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._accounts: dict[str, _Account] = {}

    @contextmanager
    def call(self, who: str, now: float) -> Iterator[None]:
        """Hold a place for one call; raises Overloaded when the identity is over its limits."""
        account = self._accounts.setdefault(who, _Account(self._limits.call_burst, now))
        earned = (now - account.at) * self._limits.calls_per_second
        account.tokens, account.at = min(self._limits.call_burst, account.tokens + earned), now
        if account.tokens < 1:
            raise Overloaded(f"{who} makes more than {self._limits.calls_per_second:g} calls a second", "slow down")
        if account.open >= self._limits.concurrent_calls:
            raise Overloaded(f"{who} has {account.open} calls open, which is the most allowed", "finish some first")
        account.tokens -= 1
        account.open += 1
        try:
            yield
        finally:
            account.open -= 1

    def is_news(self, who: str, now: float) -> bool:
        """Whether it is worth a line that somebody is over the limits: a flood of calls must not flood the log."""
        account = self._accounts[who]
        if now - account.told_at < TELL_SECONDS:
            return False
        account.told_at = now
        return True

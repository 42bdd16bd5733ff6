"""Limits on the calls of one identity: a rate with a burst, and a number of concurrent calls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from aggregator.config import Limits
from aggregator.rpc.status_errors import Overloaded

LOG_SECONDS = 10.0
"""The least time between two log lines about one identity that exceeds its limits."""


@dataclass(slots=True)
class _Account:
    tokens: float
    at: float
    open: int = 0
    logged_at: float = -math.inf


class CallLimiter:
    """A token bucket and a count of open calls per identity."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._accounts: dict[str, _Account] = {}

    @contextmanager
    def call(self, who: str, now: float) -> Iterator[None]:
        """Count one call while it lasts; raises Overloaded when the identity exceeds its limits."""
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

    def should_log(self, who: str, now: float) -> bool:
        """True if the log has not mentioned this identity lately, so that a flood of calls does not flood the log."""
        account = self._accounts[who]
        if now - account.logged_at < LOG_SECONDS:
            return False
        account.logged_at = now
        return True

"""Limits on the calls of one identity: a rate with a burst, and numbers of concurrent calls and watches."""

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
    watches: int = 0
    logged_at: float = -math.inf


class CallLimiter:
    """A token bucket and counts of open calls and watches per identity; watches leave room for calls that act."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._accounts: dict[str, _Account] = {}

    @contextmanager
    def call(self, who: str, now: float, *, watch: bool = False) -> Iterator[None]:
        """Count one call, or one watch, while it lasts; raises Overloaded when the identity exceeds its limits."""
        account = self._accounts.setdefault(who, _Account(self._limits.call_burst, now))
        earned = (now - account.at) * self._limits.calls_per_second
        account.tokens, account.at = min(self._limits.call_burst, account.tokens + earned), now
        if account.tokens < 1:
            raise Overloaded(f"{who} makes more than {self._limits.calls_per_second:g} calls a second", "slow down")
        self._check_open(who, account, watch)
        account.tokens -= 1
        account.watches += watch
        account.open += not watch
        try:
            yield
        finally:
            account.watches -= watch
            account.open -= not watch

    def _check_open(self, who: str, account: _Account, watch: bool) -> None:
        if watch and account.watches >= self._limits.concurrent_watches:
            raise Overloaded(f"{who} has {account.watches} watches open, which is the most allowed", "end some first")
        if not watch and account.open >= self._limits.concurrent_calls:
            raise Overloaded(f"{who} has {account.open} calls open, which is the most allowed", "finish some first")

    def should_log(self, who: str, now: float) -> bool:
        """True if the log has not mentioned this identity lately, so that a flood of calls does not flood the log."""
        account = self._accounts[who]
        if now - account.logged_at < LOG_SECONDS:
            return False
        account.logged_at = now
        return True

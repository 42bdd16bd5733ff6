"""Limits on the calls of one identity."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from aggregator.config import Limits
from aggregator.rpc.answers import Overloaded
from aggregator.rpc.guard import CallLimiter


def test_an_operator_with_every_watch_open_can_still_act() -> None:
    limiter = CallLimiter(Limits(concurrent_calls=2, concurrent_watches=3))
    with ExitStack() as open_calls:
        for _ in range(3):
            open_calls.enter_context(limiter.call("op", 0.0, watch=True))
        with limiter.call("op", 0.0):
            pass
        with pytest.raises(Overloaded, match="3 watches open"), limiter.call("op", 0.0, watch=True):
            pass


def test_calls_are_limited_and_do_not_use_up_watches() -> None:
    limiter = CallLimiter(Limits(concurrent_calls=2, concurrent_watches=1))
    with ExitStack() as open_calls:
        for _ in range(2):
            open_calls.enter_context(limiter.call("op", 0.0))
        with pytest.raises(Overloaded, match="2 calls open"), limiter.call("op", 0.0):
            pass
        with limiter.call("op", 0.0, watch=True):
            pass
    with limiter.call("op", 0.0):
        pass

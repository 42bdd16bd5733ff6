"""When the enrolment of a run closes whose spec names nobody."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from aggregator import run_registry
from aggregator.run.events import EnrolmentClosed
from aggregator.run.state import Status
from aggregator.run_registry import SETTLE_SECONDS, EnrolmentTimer


@pytest.mark.parametrize(("quiet", "closes"), [(SETTLE_SECONDS, True), (0.0, False)])
def test_an_answered_enrolment_closes_at_once_unless_somebody_has_just_come_or_left(
    quiet: float, closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_registry, "fewest_enrolled", lambda rules: 2)
    everybody, told = frozenset({"a", "b"}), list[Any]()
    run = SimpleNamespace(status=Status.ENROLLING, enrolled=dict.fromkeys(everybody), refusals={})
    runner: Any = SimpleNamespace(run=run, spec=SimpleNamespace(participants=()), rules=None, tell=told.append)
    directory: Any = SimpleNamespace(connected=lambda: everybody)

    async def answered() -> None:
        timer = EnrolmentTimer(runner, lambda _: everybody, directory, lambda: 0.0)
        timer.restart(asyncio.get_running_loop().time() - quiet)
        for _ in range(3):
            await asyncio.sleep(0)
        timer.cancel()

    asyncio.run(answered())
    assert [type(event) for event in told] == [EnrolmentClosed] * closes

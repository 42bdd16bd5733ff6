"""Who is connected, and when the others last were."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from aggregator.participant_directory import ParticipantDirectory
from aggregator.store.participants import ParticipantRecord


def test_a_participant_was_last_seen_when_its_connection_ended_not_when_it_began() -> None:
    store: Any = SimpleNamespace(now=lambda: 5000.0)
    directory = ParticipantDirectory(store)
    directory.records["a"] = ParticipantRecord("a", "f", 1e9, "0.2", 10, b"", last_seen=12.0)
    assert directory.enter("a")
    directory.leave("a")
    assert directory.records["a"].last_seen == 5000.0

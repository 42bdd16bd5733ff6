"""How a participant's message was received: the same four words in replies, logs and metrics of both services."""

from __future__ import annotations

from enum import StrEnum


class Fate(StrEnum):
    """The outcome of a participant's message at the aggregator."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    LATE = "late"

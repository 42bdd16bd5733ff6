"""The fate of a message: the same four words in replies, logs and metrics of both services."""

from __future__ import annotations

from enum import StrEnum


class Fate(StrEnum):
    """What the aggregator did with a participant's message."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"
    LATE = "late"

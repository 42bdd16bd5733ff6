"""Stored participants: who ever connected, and whose certificates are revoked."""

from __future__ import annotations

import sqlite3
from dataclasses import astuple, dataclass

from aggregator.store.database import transaction

_INSERT = (
    "INSERT OR REPLACE INTO participants (name, fingerprint, not_after, software, rows, features, last_seen)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_SELECT = "SELECT name, fingerprint, not_after, software, rows, features, last_seen FROM participants ORDER BY name"


@dataclass(frozen=True, slots=True)
class ParticipantRecord:
    """A participant as it described itself when it last connected. The fields are the columns of `participants`."""

    name: str
    fingerprint: str
    not_after: float
    software: str
    rows: int
    features: bytes
    last_seen: float


def remember(db: sqlite3.Connection, record: ParticipantRecord) -> None:
    """Store a participant, replacing what it said before."""
    with transaction(db):
        db.execute(_INSERT, astuple(record))


def everyone(db: sqlite3.Connection) -> list[ParticipantRecord]:
    """Everyone who ever connected, in name order."""
    return [ParticipantRecord(*row) for row in db.execute(_SELECT)]


def revoke(db: sqlite3.Connection, fingerprint: str, name: str, reason: str, at: float) -> None:
    """Refuse this certificate from now on."""
    with transaction(db):
        statement = "INSERT OR IGNORE INTO revoked (fingerprint, name, reason, at) VALUES (?, ?, ?, ?)"
        db.execute(statement, (fingerprint, name, reason, at))


def revoked(db: sqlite3.Connection) -> frozenset[str]:
    """The fingerprints of revoked certificates."""
    return frozenset(fingerprint for (fingerprint,) in db.execute("SELECT fingerprint FROM revoked"))

"""Stored participants: who ever connected, and whose certificates are revoked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
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


def revoke(db: sqlite3.Connection, marks: Iterable[str], name: str, reason: str, at: float) -> None:
    """Revoke these identifiers, all of them or none."""
    rows = [(mark, name, reason, at) for mark in sorted(marks)]
    with transaction(db):
        db.executemany("INSERT OR IGNORE INTO revoked VALUES (?, ?, ?, ?)", rows)


def restore(db: sqlite3.Connection, marks: Iterable[str]) -> None:
    """Undo these revocations, all of them or none."""
    with transaction(db):
        db.executemany("DELETE FROM revoked WHERE fingerprint = ?", [(mark,) for mark in marks])


def revoked_under(db: sqlite3.Connection, name: str) -> frozenset[str]:
    """The identifiers revoked under this name, or with this fingerprint."""
    rows = db.execute("SELECT fingerprint FROM revoked WHERE ? IN (name, fingerprint)", (name,))
    return frozenset(mark for (mark,) in rows)


def revoked(db: sqlite3.Connection) -> frozenset[str]:
    """All revoked identifiers; older stores hold fingerprints only."""
    return frozenset(mark for (mark,) in db.execute("SELECT fingerprint FROM revoked"))

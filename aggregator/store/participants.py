"""Stored participants: who ever connected, and whose certificates are revoked."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from aggregator.store.database_port import Database

_UPSERT = (
    "INSERT INTO participants (name, fingerprint, not_after, software, rows, features, last_seen)"
    " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET fingerprint = excluded.fingerprint,"
    " not_after = excluded.not_after, software = excluded.software, rows = excluded.rows,"
    " features = excluded.features, last_seen = excluded.last_seen"
)
_SELECT = "SELECT name, fingerprint, not_after, software, rows, features, last_seen FROM participants ORDER BY name"
_REVOKE = "INSERT INTO revoked (fingerprint, name, reason, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
_RESTORE = "DELETE FROM revoked WHERE fingerprint = ?"
_REVOKED_UNDER = "SELECT fingerprint FROM revoked WHERE name = ? OR fingerprint = ?"


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


def remember(db: Database, record: ParticipantRecord) -> None:
    """Store a participant, replacing what it said before."""
    with db.transaction():
        db.execute(_UPSERT, astuple(record))


def everyone(db: Database) -> list[ParticipantRecord]:
    """Everyone who ever connected, in name order."""
    return [ParticipantRecord(*row) for row in db.execute(_SELECT)]


def revoke(db: Database, marks: Iterable[str], name: str, reason: str, at: float) -> None:
    """Revoke these identifiers, all of them or none."""
    rows = [(mark, name, reason, at) for mark in sorted(marks)]
    with db.transaction():
        db.executemany(_REVOKE, rows)


def restore(db: Database, marks: Iterable[str]) -> None:
    """Undo these revocations, all of them or none."""
    with db.transaction():
        db.executemany(_RESTORE, [(mark,) for mark in marks])


def revoked_under(db: Database, name: str) -> frozenset[str]:
    """The identifiers revoked under this name, or with this fingerprint."""
    return frozenset(mark for (mark,) in db.execute(_REVOKED_UNDER, (name, name)))


def revoked(db: Database) -> frozenset[str]:
    """All revoked identifiers; those written by older versions are fingerprints."""
    return frozenset(mark for (mark,) in db.execute("SELECT fingerprint FROM revoked"))

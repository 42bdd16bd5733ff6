"""Who ever connected, and who is turned away."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from aggregator.store.database import transaction


@dataclass(frozen=True, slots=True)
class Acquaintance:
    """A participant as it last introduced itself."""

    name: str
    fingerprint: str
    not_after: float
    software: str
    rows: int
    features: bytes
    last_seen: float


def remember(db: sqlite3.Connection, who: Acquaintance) -> None:
    """Keep what a participant said of itself when it connected."""
    row = (who.name, who.fingerprint, who.not_after, who.software, who.rows, who.features, who.last_seen)
    with transaction(db):
        db.execute("INSERT OR REPLACE INTO participants VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def everyone(db: sqlite3.Connection) -> list[Acquaintance]:
    """Everyone who ever connected, in name order."""
    return [Acquaintance(*row) for row in db.execute("SELECT * FROM participants ORDER BY name")]


def revoke(db: sqlite3.Connection, marks: Iterable[str], name: str, reason: str, at: float) -> None:
    """Turn the certificates with one of these marks away from now on, all of them or none."""
    rows = [(mark, name, reason, at) for mark in sorted(marks)]
    with transaction(db):
        db.executemany("INSERT OR IGNORE INTO revoked VALUES (?, ?, ?, ?)", rows)


def restore(db: sqlite3.Connection, marks: Iterable[str]) -> None:
    """Take these revocations back, all of them or none."""
    with transaction(db):
        db.executemany("DELETE FROM revoked WHERE fingerprint = ?", [(mark,) for mark in marks])


def revoked_under(db: sqlite3.Connection, name: str) -> frozenset[str]:
    """The marks that were turned away under this name, or with this fingerprint."""
    rows = db.execute("SELECT fingerprint FROM revoked WHERE ? IN (name, fingerprint)", (name,))
    return frozenset(mark for (mark,) in rows)


def revoked(db: sqlite3.Connection) -> frozenset[str]:
    """Marks that are turned away; older stores hold fingerprints only."""
    return frozenset(mark for (mark,) in db.execute("SELECT fingerprint FROM revoked"))

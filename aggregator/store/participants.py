"""Who ever connected, and who is turned away."""

from __future__ import annotations

import sqlite3
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


def revoke(db: sqlite3.Connection, fingerprint: str, name: str, reason: str, at: float) -> None:
    """Turn this certificate away from now on."""
    with transaction(db):
        db.execute("INSERT OR IGNORE INTO revoked VALUES (?, ?, ?, ?)", (fingerprint, name, reason, at))


def revoked(db: sqlite3.Connection) -> frozenset[str]:
    """Fingerprints that are turned away."""
    return frozenset(fingerprint for (fingerprint,) in db.execute("SELECT fingerprint FROM revoked"))

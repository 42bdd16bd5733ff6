"""SQLite's own check of the store, table by table."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from aggregator.store.sqlite_errors import damaged

_VITAL = ("participants", "revoked", "audit", "opening")
_RUNS = ("runs", "events", "consensus", "rounds")


def check_vital_tables(db: sqlite3.Connection, path: Path) -> None:
    """Raise UnusableState when the audit log, the participants or the revocations are damaged.

    Without them the aggregator would let in whom it has turned away, or continue a log with a gap.
    """
    found = [sentence for table in _VITAL for sentence in _damage(db, table)]
    if found:
        raise damaged(f"the store {path}", found[0])


def damage_in_runs(db: sqlite3.Connection) -> list[str]:
    """What is wrong with the tables of runs, one sentence each; checksums tell which runs it concerns."""
    return [sentence for table in _RUNS for sentence in _damage(db, table)]


def damage_anywhere(db: sqlite3.Connection) -> list[str]:
    """What SQLite finds wrong with the whole file, one sentence each."""
    return _sentences(db, "PRAGMA integrity_check(5)")


def _damage(db: sqlite3.Connection, table: str) -> list[str]:
    return [f"table {table}: {sentence}" for sentence in _sentences(db, f"PRAGMA integrity_check({table})")]


def _sentences(db: sqlite3.Connection, pragma: str) -> list[str]:
    try:
        found = [" ".join(str(text).split()) for (text,) in db.execute(pragma)]
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        return [str(error)]
    return [] if found == ["ok"] else found

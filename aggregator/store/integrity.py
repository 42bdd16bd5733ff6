"""The database's own check of the store, table by table. PostgreSQL is checked by its own administrator, not here."""

from __future__ import annotations

from aggregator.store.database_port import Database
from aggregator.store.sqlite_errors import damaged

_VITAL = ("participants", "revoked", "audit", "opening")
_RUNS = ("runs", "events", "consensus", "rounds", "opened_sums")


def check_vital_tables(db: Database, where: str) -> None:
    """Raise UnusableState when the audit log, the participants or the revocations are damaged.

    Without them the aggregator would let in whom it has turned away, or continue a log with a gap.
    """
    found = [sentence for table in _VITAL for sentence in _damage(db, table)]
    if found:
        raise damaged(where, found[0])


def damage_in_runs(db: Database) -> list[str]:
    """What is wrong with the tables of runs, one sentence each; checksums tell which runs it concerns."""
    return [sentence for table in _RUNS for sentence in _damage(db, table)]


def damage_anywhere(db: Database) -> list[str]:
    """What is wrong with the whole database, one sentence each."""
    return db.damage()


def _damage(db: Database, table: str) -> list[str]:
    return [f"table {table}: {sentence}" for sentence in db.damage(table)]

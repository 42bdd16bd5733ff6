"""Reading a whole store to learn whether it is sound: for `check`, and for a backup before it is believed."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from aggregator.store import audit, run_rows
from aggregator.store.database_port import Database
from aggregator.store.integrity import damage_anywhere
from aggregator.store.run_rows import DAMAGED, HeldRun
from dcfpca.audit_chain import GENESIS, entry_hash
from dcfpca.errors import UnusableState
from dcfpca.v1.admin_pb2 import RoundView


@dataclass(frozen=True, slots=True)
class Findings:
    """What is in a store and what is wrong with it.

    `file` is what SQLite says of the file and the audit log's chain, `damaged` and `unknown` are sentences by run: of
    those that are damaged, and of those that other software has written.
    """

    runs: int
    file: tuple[str, ...]
    damaged: tuple[str, ...]
    unknown: tuple[str, ...]


def examine(db: Database) -> Findings:
    """Run SQLite's check, load every run with its rounds, and follow the chain of the audit log."""
    file = damage_anywhere(db)
    try:
        file += _audit_damage(db)
        ids = run_rows.run_ids(db)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        return Findings(0, (*file, str(error)), (), ())
    held = [one for run_id in ids if (one := _examined(db, run_id)) is not None]
    damaged = tuple(f"run {one.run_id}: {one.reason}" for one in held if one.status == DAMAGED)
    unknown = tuple(f"run {one.run_id}: {one.reason}" for one in held if one.status != DAMAGED)
    return Findings(len(ids), tuple(file), damaged, unknown)


def _examined(db: Database, run_id: str) -> HeldRun | None:
    found = run_rows.read_run(db, run_id)
    if isinstance(found, HeldRun):
        return found
    try:
        for view in run_rows.round_views(db, run_id):
            RoundView.FromString(view)
    except (sqlite3.DatabaseError, UnusableState) as error:
        return HeldRun(run_id, DAMAGED, str(error), "")
    return None


def _audit_damage(db: Database) -> list[str]:
    previous = GENESIS
    try:
        entries = audit.entries(db)
    except (TypeError, ValueError):
        return ["the audit log holds a value of another type than was written"]
    for sequence, entry in enumerate(entries, 1):
        if (entry.sequence, entry.previous, entry.hash) != (sequence, previous, entry_hash(entry)):
            return [f"the audit log is damaged at entry {sequence}"]
        previous = entry.hash
    return []

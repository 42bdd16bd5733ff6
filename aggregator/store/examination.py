"""Whether a store is sound: its vital tables at every start, all of it for `check` and in every backup that is made."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from aggregator.store import audit, run_rows
from aggregator.store.database import connect, damaged, explained, is_full
from aggregator.store.database_port import Database
from aggregator.store.run_rows import DAMAGED, HeldRun
from dcfpca.atomic_files import sync_directory, sync_file
from dcfpca.errors import BadInput, DcfpcaError, UnusableState
from dcfpca.v1.admin_pb2 import RoundView
from dcfpca.wire.audit_chain import GENESIS, entry_hash

_VITAL = ("participants", "revoked", "audit", "opening")
_RUNS = ("runs", "events", "consensus", "rounds", "opened_sums")


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
    file = db.damage()
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


def _damage(db: Database, table: str) -> list[str]:
    return [f"table {table}: {sentence}" for sentence in db.damage(table)]


def back_up(source: Path, out: Path) -> Findings:
    """Copy the store to a new file, readable by its owner alone; returns what was found in the copy.

    Raises a DcfpcaError, and leaves nothing behind, when the copy cannot be written or SQLite finds it damaged. Damaged
    runs are copied like the others, because a copy without them would hide the loss.
    """
    if not source.exists():
        raise BadInput(f"there is no store at {source}", "check [store] path")
    if out.exists():
        raise BadInput(f"{out} exists already", "name a new file; nothing is overwritten")
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        findings = _verified_copy(source, beside)
        sync_file(beside)
        beside.replace(out)
        sync_directory(out.parent)
    except OSError as error:
        hint = "name a file in a directory that exists, is writable and has space"
        raise BadInput(f"the copy {out} cannot be written: {error.strerror}", hint) from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                beside.with_name(beside.name + suffix).unlink(missing_ok=True)
    return findings


def _verified_copy(source: Path, beside: Path) -> Findings:
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(_connected(source, f"{source.resolve().as_uri()}?mode=ro")) as live, closing(connect(beside)) as copy:
        _copy(live, copy, source, beside)
        findings = examine(copy)
    if findings.file:
        hint = "nothing was written; the store itself needs to be restored from an earlier backup (deploy/RUNBOOK.md)"
        raise UnusableState(f"the copy of {source} is damaged: {findings.file[0]}", hint)
    return findings


def _connected(source: Path, uri: str) -> sqlite3.Connection:
    try:
        return connect(uri, uri=True)
    except sqlite3.DatabaseError as error:
        raise explained(error, source) from error


def _copy(live: sqlite3.Connection, copy: sqlite3.Connection, source: Path, beside: Path) -> None:
    try:
        live.backup(copy)
        # Not the journal of the source: the copy is one file, and whatever lies beside it does not belong to it.
        copy.execute("PRAGMA journal_mode = DELETE")
        if copy.execute("SELECT 1 FROM sqlite_schema WHERE name = 'opening'").fetchone():
            copy.execute("UPDATE opening SET id = ''")
    except sqlite3.DatabaseError as error:
        raise _explained_copy(error, source, beside) from error


def _explained_copy(error: sqlite3.DatabaseError, source: Path, beside: Path) -> DcfpcaError:
    if is_full(error, beside):
        hint = "free space there or name another disk; nothing was left behind, and the store is unaffected"
        return UnusableState(f"the copy cannot be written to {beside.parent}: the disk is full", hint)
    return explained(error, source)

"""The store: runs, journal, consensus, participants. Synchronous; one thread uses it at a time.

A store in SQLite is locked, checked, and marked as open until it is closed: SQLite starts without a word when the
write-ahead log is gone, with whatever had been folded into the database before. The mark is a file beside the store
with an id that the database holds too. It is removed when the store is closed and its log folded. A store that still
has its mark at the next opening was not closed, so its log must be there. A restored backup holds no id: whatever mark
the lost store left does not concern it.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from aggregator.run.events import Event
from aggregator.run.state import Run
from aggregator.store import run_rows
from aggregator.store.database import (
    LEAST_FREE,
    SqliteDatabase,
    StoreFailed,
    connect,
    disk_full,
    explained,
    lock,
    log_file,
    open_database,
)
from aggregator.store.database_port import Database
from aggregator.store.examination import check_vital_tables, damage_in_runs
from aggregator.store.export_files import ExportFiles
from aggregator.store.run_rows import StoredSum
from aggregator.store.update_files import UpdateFiles, UpdateKey
from dcfpca.atomic_files import atomic_write, free_bytes
from dcfpca.errors import UnusableState
from dcfpca.rpca.method import Consensus
from dcfpca.run_references import AttemptRef
from dcfpca.wire.tensors import Buffer

MOST_SHARES = 1 << 14
"""Sealed shares that the stored state of a run may hold; more stay in the journal, where each member's came from."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction: events, the state they lead to, and what they make obsolete."""

    run: Run
    seq: int
    events: Sequence[Event]
    checkpoint: bool = False
    chunks: Sequence[tuple[UpdateKey, int, Buffer]] = ()
    consensus: Consensus | None = None
    round_view: tuple[int, bytes] | None = None
    opened_sum: StoredSum | None = None
    discard: Sequence[AttemptRef] = ()


class Store:
    """Everything durable: one database, and on this machine the files of open updates and of exports.

    `damage` is what the database found wrong with the tables of runs when the store was opened, one sentence each.
    """

    def __init__(self, path: Path, database: Database | None = None) -> None:
        """The SQLite file at this path; or this database, with only the files beside that path."""
        self.path = path
        self.updates = UpdateFiles(path.with_name(f"{path.name}.updates"))
        self.exports = ExportFiles(path)
        for directory in (self.updates.directory, self.exports.directory):
            if directory.exists():  # earlier versions made them for everybody to enter
                directory.chmod(0o700)
        self.write_failed = False
        self._is_untidy = False
        self._closing = ExitStack()
        if database is None:
            self.connection: Database = _open_sqlite(path, self._closing)
        else:
            self.connection = self._closing.enter_context(closing(database))
        self.damage = damage_in_runs(self.connection)

    def close(self) -> None:
        """Close the database, and whatever shows that it is open."""
        self._closing.close()

    def create_run(self, run: Run, spec_bytes: bytes, request_id: str, consensus: Consensus) -> None:
        """Store a new run; its request id makes the proposal idempotent."""
        with self.connection.transaction():
            run_rows.insert_run(self.connection, run, spec_bytes, request_id, consensus)

    def commit(self, commit: Commit) -> None:
        """Make a batch of events durable with everything they lead to. After a new consensus `tidy` is to be called.

        Only checkpoints wait for the disk. Each stores the state in place of the journal, unless the run holds shares
        of more members than fit into a row: then the journal goes on until the set-up is over. A power cut in
        the middle of a round takes the aggregator back to the opening of that attempt, where the participants repeat
        their messages or the round is reopened: nothing is lost, and no masks are opened twice.
        """
        run_id, db = commit.run.run_id, self.connection
        self.updates.add_last(commit.chunks)
        fold = commit.consensus is None or self._is_untidy
        with db.transaction(wait_for_disk=commit.checkpoint, fold=fold):
            if commit.checkpoint and not _holds_many_shares(commit.run):
                run_rows.update_state(db, commit.run, commit.seq)
            else:
                run_rows.append_events(db, run_id, commit.seq - len(commit.events) + 1, commit.events)
            if commit.consensus:
                run_rows.update_consensus(db, run_id, commit.consensus)
            if commit.round_view:
                run_rows.insert_round(db, run_id, *commit.round_view)
            if commit.opened_sum:
                run_rows.keep_opened_sum(db, run_id, commit.opened_sum)
        self._is_untidy = not fold
        for ref in commit.discard:
            self.updates.discard(ref)
        if commit.checkpoint and commit.run.attempt is not None:
            self.updates.load(commit.run.attempt.ref)  # so that nobody's update has to wait for it
        if commit.run.status.over:
            self.updates.discard_run(run_id)
            db.fold_log()

    def tidy(self, run_id: str) -> None:
        """What a commit leaves to be done once everybody has been told of it: delete updates, fold the log."""
        self.updates.sweep(run_id)
        self.connection.fold_long_log()
        self._is_untidy = False

    def delete_run(self, run_id: str) -> None:
        """Delete a run with its rounds, updates and exports; the audit log keeps its entries."""
        with self.connection.transaction():
            run_rows.delete_rows(self.connection, run_id)
        self.updates.discard_run(run_id)
        self.exports.delete_run(run_id)
        self.connection.fold_log()

    def check_writable(self) -> None:
        """Raise StoreFailed or BadInput when nothing can be written.

        Writes only after a transaction has failed (`write_failed`), to learn whether it would succeed by now.
        """
        if free_bytes(self.path.parent) < LEAST_FREE:
            self.connection.fold_log()
            raise disk_full("the store")
        self.connection.probe_write(commit=self.write_failed)
        self.write_failed = False


def mark_file(path: Path) -> Path:
    """The file beside the store that says that it is open."""
    return path.with_name(f"{path.name}.open")


def _check_log(path: Path) -> None:
    """Raise UnusableState when the store was not closed and its write-ahead log is gone."""
    mark = mark_file(path)
    if not mark.exists() or log_file(path).exists():
        return
    if path.exists() and mark.read_text() != _id_in(path):
        return
    hint = (
        f"put the log back, or restore a backup (deploy/RUNBOOK.md); remove {mark.name} to go on with what is left, "
        "also if another program has opened the store meanwhile and folded the log itself"
    )
    missing = "its write-ahead log is gone" if path.exists() else "it is gone"
    raise UnusableState(f"the store {path} was not closed, and {missing}: what was in it is lost", hint)


def _mark_open(connection: SqliteDatabase, path: Path) -> None:
    """Mark the store as open; the id is in the database itself, not in its log, before the file says so."""
    mine = secrets.token_hex(8)
    with connection.transaction():
        connection.execute("UPDATE opening SET id = ?", (mine,))
    connection.fold_log()
    try:
        atomic_write(mark_file(path), lambda file: file.write(mine.encode()))
    except OSError as error:
        raise StoreFailed(f"{mark_file(path)} cannot be written: {error.strerror}", "free some space") from error


def _mark_closed(path: Path) -> None:
    """Remove the mark of a store that was closed, unless a reader kept its log from being folded."""
    if not log_file(path).exists():
        mark_file(path).unlink(missing_ok=True)


def _id_in(path: Path) -> str:
    """The id in the database, read without touching it; empty where there is none or it cannot be read."""
    try:
        with closing(connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)) as reader:
            return str(reader.execute("SELECT id FROM opening").fetchone()[0])
    except (sqlite3.DatabaseError, TypeError):
        return ""


def _open_sqlite(path: Path, on_close: ExitStack) -> SqliteDatabase:
    """The store at this path; `on_close` closes the database, which merges its log, then releases the lock."""
    handle = lock(path)
    try:
        database = _checked(path)
    except BaseException:
        os.close(handle)
        raise
    on_close.callback(os.close, handle)
    on_close.callback(_mark_closed, path)
    on_close.callback(database.close)
    return database


def _checked(path: Path) -> SqliteDatabase:
    _check_log(path)
    database = open_database(path)
    try:
        check_vital_tables(database, f"the store {path}")
        _mark_open(database, path)
    except sqlite3.DatabaseError as error:
        database.close()
        raise explained(error, path) from error
    except BaseException:
        database.close()
        raise
    return database


def _holds_many_shares(run: Run) -> bool:
    return run.secure is not None and sum(map(len, run.secure.shares.values())) > MOST_SHARES

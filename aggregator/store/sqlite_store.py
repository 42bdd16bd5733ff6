"""Opening the SQLite store of this aggregator: locked, checked, and marked as open until it is closed.

SQLite starts without a word when the write-ahead log is gone, with whatever had been folded into the database before.
By the mark that is noticed: a file beside the store with an id that the database holds too. It is removed when the
store is closed and its log folded. A store that still has its mark at the next opening was not closed, so its log must
be there. A restored backup holds no id: whatever mark the lost store left does not concern it.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

from aggregator.store.database import SqliteDatabase, StoreFailed, connect, explained, lock, log_file, open_database
from aggregator.store.examination import check_vital_tables
from dcfpca.atomic_files import atomic_write
from dcfpca.errors import UnusableState


def mark_file(path: Path) -> Path:
    """The file beside the store that says that it is open."""
    return path.with_name(f"{path.name}.open")


def check_log(path: Path) -> None:
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


def mark_open(connection: SqliteDatabase, path: Path) -> None:
    """Mark the store as open; the id is in the database itself, not in its log, before the file says so."""
    mine = secrets.token_hex(8)
    with connection.transaction():
        connection.execute("UPDATE opening SET id = ?", (mine,))
    connection.fold_log()
    try:
        atomic_write(mark_file(path), lambda file: file.write(mine.encode()))
    except OSError as error:
        raise StoreFailed(f"{mark_file(path)} cannot be written: {error.strerror}", "free some space") from error


def mark_closed(path: Path) -> None:
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


def open_sqlite(path: Path, closing: ExitStack) -> SqliteDatabase:
    """The store at this path; `closing` closes the database, which merges its log, then releases the lock."""
    handle = lock(path)
    try:
        database = _checked(path)
    except BaseException:
        os.close(handle)
        raise
    closing.callback(os.close, handle)
    closing.callback(mark_closed, path)
    closing.callback(database.close)
    return database


def _checked(path: Path) -> SqliteDatabase:
    check_log(path)
    database = open_database(path)
    try:
        check_vital_tables(database, f"the store {path}")
        mark_open(database, path)
    except sqlite3.DatabaseError as error:
        database.close()
        raise explained(error, path) from error
    except BaseException:
        database.close()
        raise
    return database

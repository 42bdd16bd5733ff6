"""Opening the site's SQLite file: its mode, its version, and the columns that earlier versions did not have."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from importlib.resources import files as package_files
from pathlib import Path

from dcfpca.errors import UnusableState
from participant.state.directory import is_disk_full, unusable_state

DATABASE = "state.db"
"""Its name in the site's state directory."""
VERSION = 3
LOG_PAGES = 256
"""Pages of 4 KiB in the write-ahead log before SQLite folds it into the database."""
CACHED_PAGES = 128
"""Pages in memory: with SQLite's own 2 MB a daemon would grow for hundreds of runs."""
_ADDED = (("runs", "cohort", "TEXT NOT NULL DEFAULT '[]'"),)
"""Columns that a file of an earlier version lacks."""
_DROPPED = """
DROP TABLE IF EXISTS seeds;
DROP TABLE IF EXISTS opened_sums;
DELETE FROM inbox;
"""
"""What earlier versions kept of secure runs that went on without members: no such run goes on. Announcements are
deleted with it, because some are of such runs; the aggregator repeats the others."""


def open_database(path: Path) -> sqlite3.Connection:
    """The database at this path, made or upgraded where needed.

    Raises UnusableState, or SQLite's own error when the disk is full: then trying again later may succeed.
    """
    make_private_file(path)
    path.chmod(0o600)
    database = sqlite3.connect(path, timeout=10, check_same_thread=False)
    try:
        _prepare(path, database)
    except sqlite3.Error as error:
        database.close()
        if is_disk_full(error, path.parent):
            raise
        raise unusable_state(path.parent, error) from None
    except BaseException:
        database.close()
        raise
    return database


def make_private_file(path: Path) -> None:
    """Create an empty file for this user alone, unless it is there.

    One that is there is not opened: closing it would end the locks that SQLite holds on it in this process, and the
    next process to leave would delete the log of writes under the daemon.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def run_names(database: sqlite3.Connection) -> list[str]:
    """The identifiers of all runs that were proposed to this site, newest first."""
    rows = database.execute("SELECT run_id FROM runs ORDER BY proposed_ms DESC, run_id DESC")
    return [run_id for (run_id,) in rows]


def _prepare(path: Path, database: sqlite3.Connection) -> None:
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute("PRAGMA secure_delete = ON")
    database.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    database.execute(f"PRAGMA cache_size = {CACHED_PAGES}")
    (found,) = database.execute("PRAGMA user_version").fetchone()
    if found > VERSION:
        sentence = f"the state {path} was written by a newer version (format {found}, this one knows {VERSION})"
        raise UnusableState(sentence, "install the newer version again")
    if found < VERSION:
        _upgrade(database)


def _upgrade(database: sqlite3.Connection) -> None:
    """Make what is missing, all or nothing; columns are compared one by one, as versions were not always raised."""
    script = package_files("participant.state").joinpath("schema.sql").read_text(encoding="utf-8")
    database.executescript(f"BEGIN IMMEDIATE;\n{script}\n{_DROPPED}\nCOMMIT;")
    with database:
        for table, column, kind in _ADDED:
            present = {row[1] for row in database.execute(f"PRAGMA table_info({table})")}
            if column not in present:
                database.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        database.execute(f"PRAGMA user_version = {VERSION}")

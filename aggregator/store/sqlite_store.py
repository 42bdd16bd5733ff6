"""Opening the SQLite store of this aggregator: locked, checked, and marked as open until it is closed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack
from pathlib import Path

from aggregator.store.database import SqliteDatabase, explained, lock, open_database
from aggregator.store.integrity import check_vital_tables
from aggregator.store.opening_mark import check_log, mark_closed, mark_open


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

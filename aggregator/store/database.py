"""Opens the SQLite file: lock, version and pragmas. Every failure is an error with one sentence and a hint."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

from dcfpca.errors import BadInput, DcfpcaError, UnusableState

VERSION = 1


class StoreFailed(DcfpcaError):
    """The store cannot be written or read any more; nothing that was acknowledged is lost."""


def open_database(path: Path) -> sqlite3.Connection:
    """The store at this path, made or upgraded where needed, in WAL mode."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=2)
    except sqlite3.DatabaseError as error:
        raise explained(error, path) from error
    try:
        _prepare(connection, path)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise explained(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def lock(path: Path) -> int:
    """Lock the store for this process, so that two aggregators cannot use it at once.

    Beside the file and not in it, so that backups can read it meanwhile. The lock ends with the process.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadInput(f"the store {path} cannot be opened: {error.strerror}", "check [store] path") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        hint = "stop the other aggregator, or give each its own store"
        raise UnusableState(f"the store {path} is in use by another aggregator", hint) from error
    return handle


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    # The updates of a round pass through the log once and are deleted again: fold it in seldom.
    connection.execute("PRAGMA wal_autocheckpoint = 16384")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        connection.execute("ROLLBACK")
        raise UnusableState(
            f"the store {path} was written by a newer version (store version {version}, this software knows {VERSION})",
            "run the newer software, or restore the backup taken before the upgrade",
        )
    for script in _scripts(version):
        for statement in _statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _scripts(version: int) -> Iterator[str]:
    """The SQL scripts from this version to the current one: the schema for a new file, else the upgrades in order."""
    here = resources.files("aggregator.store")
    if version == 0:
        yield here.joinpath("schema.sql").read_text()
        return
    for step in range(version + 1, VERSION + 1):
        yield here.joinpath(f"upgrade-{step}.sql").read_text()


def _statements(script: str) -> Iterator[str]:
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


@contextmanager
def transaction(connection: sqlite3.Connection, *, wait_for_disk: bool = True) -> Iterator[sqlite3.Connection]:
    """A transaction; a failure rolls it back and raises StoreFailed.

    What is committed survives the death of the process in any case. With `wait_for_disk` it survives a power cut too;
    without, a power cut may undo it together with what was committed since the last transaction that waited.
    """
    try:
        connection.execute(f"PRAGMA synchronous = {'FULL' if wait_for_disk else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.DatabaseError):
            raise explained(error) from error
        raise


def explained(error: sqlite3.DatabaseError, path: Path | None = None) -> DcfpcaError:
    """An SQLite error as a sentence with a hint."""
    where = f"the store {path}" if path else "the store"
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFailed(
            f"{where} cannot be written: the disk is full", "free some space; nothing acknowledged is lost"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return UnusableState(
            f"{where} is in use by another process", "stop the other aggregator, or give each its own store"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        hint = "restore it from a backup (deploy/RUNBOOK.md); it has not been changed"
        return UnusableState(f"{where} is damaged or is not a store: {error}", hint)
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return BadInput(
            f"{where} cannot be written: {error}", "check that its directory exists and who may write there"
        )
    return StoreFailed(f"{where} failed: {error}", "look at the disk; what was acknowledged is safe")

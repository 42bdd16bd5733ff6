"""The store in a SQLite file: its errors as sentences, its lock, version and pragmas, and the transactions on it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import resources
from pathlib import Path

from aggregator.store.database_port import VERSION, Stored
from dcfpca.atomic_files import free_bytes, make_directories, sync_directory
from dcfpca.errors import BadInput, DcfpcaError, UnusableState

LEAST_FREE = 64 << 10
"""Bytes of free space below which a disk counts as full."""

_RESTORE = "restore it from a backup (deploy/RUNBOOK.md); it has not been changed"
_FREE = "free some space; nothing acknowledged is lost"


class StoreFailed(DcfpcaError):
    """The store can no longer be written or read; nothing that was acknowledged is lost."""


def explained(error: sqlite3.DatabaseError, path: Path | None = None) -> DcfpcaError:
    """What SQLite complains of, as a sentence with a hint."""
    where = f"the store {path}" if path else "the store"
    if is_full(error, path):
        return disk_full(where)
    match _code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            hint = "stop the other aggregator, or give each its own store"
            return UnusableState(f"{where} is in use by another process", hint)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return damaged(where, str(error))
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            hint = "check that its directory exists and who may write there"
            return BadInput(f"{where} cannot be written: {error}", hint)
        case sqlite3.SQLITE_ERROR:
            hint = "install the version that wrote it, or restore the backup taken before the upgrade"
            return UnusableState(f"{where} is not laid out as this software expects: {error}", hint)
    return StoreFailed(f"{where} failed: {error}", "look at the disk; what was acknowledged is safe")


def is_full(error: sqlite3.DatabaseError, path: Path | None = None) -> bool:
    """Whether the disk is full; SQLite calls it an I/O error when the index of its log cannot be made."""
    code = _code(error)
    return code == sqlite3.SQLITE_FULL or (
        code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
        and path is not None
        and free_bytes(path.parent) < LEAST_FREE
    )


def damaged(where: str, why: str) -> UnusableState:
    """The error of a file that is no store, or no longer one."""
    return UnusableState(f"{where} is damaged or is not a store: {why}", _RESTORE)


def disk_full(where: str) -> StoreFailed:
    """The error of a store whose disk has no space left."""
    return StoreFailed(f"{where} cannot be written: the disk is full", _FREE)


def _code(error: sqlite3.DatabaseError) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


__all__ = ["VERSION", "SqliteDatabase", "StoreFailed", "explained", "lock", "open_database", "statements"]

LOG_PAGES = 256
"""Pages of 4 KiB in the write-ahead log before SQLite folds it into the database."""
LOG_BYTES = 1 << 20
"""The size to which the file of the log is cut whenever it starts over."""


class SqliteDatabase(sqlite3.Connection):
    """A connection to the file; `Database` of database_port.py says what its methods do."""

    @contextmanager
    def transaction(self, *, wait_for_disk: bool = True, fold: bool = True) -> Iterator[None]:
        """A transaction, rolled back on failure."""
        try:
            self.execute(f"PRAGMA synchronous = {'FULL' if wait_for_disk else 'NORMAL'}")
            self.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES if fold else 0}")
            self.execute("BEGIN IMMEDIATE")
            yield
            self.execute("COMMIT")
        except BaseException as error:
            self._undo(error)
            if isinstance(error, sqlite3.DatabaseError):
                raise explained(error) from error
            raise

    def probe_write(self, *, commit: bool) -> None:
        """Prove the lock and the permission to write, and with `commit` the space."""
        try:
            self.execute("BEGIN IMMEDIATE")
            self._write_version()
            self.execute("COMMIT" if commit else "ROLLBACK")
        except sqlite3.DatabaseError as error:
            self._undo(error)
            raise explained(error) from error

    def _write_version(self) -> None:
        (version,) = self.execute("PRAGMA user_version").fetchone()
        self.execute(f"PRAGMA user_version = {version}")

    def _undo(self, error: BaseException) -> None:
        if self.in_transaction:
            self.execute("ROLLBACK")
        if isinstance(error, sqlite3.DatabaseError) and is_full(error):
            self.fold_log()

    def fold_log(self) -> None:
        """Move the write-ahead log into the database and cut its file to nothing; later, if a reader is in the way."""
        with suppress(sqlite3.OperationalError):
            self.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self.execute("PRAGMA shrink_memory")  # a run is over, and nobody reads its pages soon

    def fold_long_log(self) -> None:
        """Move the log into the database if it has grown long, with a transaction that writes a number again."""
        with suppress(StoreFailed), self.transaction(wait_for_disk=False):
            self._write_version()

    def damage(self, table: str = "") -> list[str]:
        """What SQLite's own check finds."""
        try:
            rows = self.execute(f"PRAGMA integrity_check({table or 5})")
            found = [" ".join(str(text).split()) for (text,) in rows]
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            return [str(error)]
        return [] if found == ["ok"] else found


def row_checksum(*values: Stored) -> int:
    """64 bits over the values of a row with their types; detects damage, not tampering."""
    digest = hashlib.blake2b(digest_size=8)
    for value in values:
        text = value.hex() if isinstance(value, float) else str(value)
        body = value if isinstance(value, bytes) else text.encode(errors="surrogatepass")
        digest.update(b"%s:%d:" % (type(value).__name__.encode(), len(body)))
        digest.update(body)
    return int.from_bytes(digest.digest(), "big", signed=True)


def open_database(path: Path) -> SqliteDatabase:
    """The store at this path, made or upgraded where needed, in WAL mode, readable by its owner alone."""
    try:
        if not path.exists():
            _create(path)
        elif not path.stat().st_size and not log_file(path).exists():
            hint = "restore it from a backup (deploy/RUNBOOK.md), or remove the file to begin with a new store"
            raise UnusableState(f"the store {path} is an empty file", hint)
        path.chmod(0o600)
        return _opened(path)
    except sqlite3.DatabaseError as error:
        raise explained(error, path) from error
    except UnicodeDecodeError as error:
        raise damaged(f"the store {path}", "its schema is not text") from error
    except OSError as error:
        raise BadInput(f"the store {path} cannot be opened: {error.strerror}", "check [store] path") from error


def log_file(path: Path) -> Path:
    """The write-ahead log of a store."""
    return path.with_name(f"{path.name}-wal")


def lock(path: Path) -> int:
    """Lock the store for this process, so that two aggregators cannot use it at once.

    Beside the file and not in it, so that backups can read it meanwhile. The lock ends with the process.
    """
    try:
        make_directories(path.parent)
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


def connect(path: Path | str, *, uri: bool = False) -> SqliteDatabase:
    """A connection without implicit transactions. Text that is damaged is read with marks, and fails its checksum."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=2, uri=uri, factory=SqliteDatabase
    )
    connection.text_factory = lambda body: body.decode("utf-8", "replace")
    connection.create_function("row_checksum", -1, row_checksum, deterministic=True)
    return connection


def _create(path: Path) -> None:
    """Make a new store, which appears complete or not at all: an empty file is always one that lost its content."""
    if log_file(path).exists():
        hint = "put the file back, or restore a backup; to begin with a new store, remove the log too"
        raise UnusableState(f"the store {path} is missing and its write-ahead log is there", hint)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_WRONLY | os.O_CREAT, 0o600))
    connection = connect(fresh)
    try:
        _upgrade(connection, 0)
    finally:
        connection.close()
    fresh.replace(path)
    sync_directory(path.parent)


def _opened(path: Path) -> SqliteDatabase:
    connection = connect(path)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: SqliteDatabase, path: Path) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    connection.execute("PRAGMA foreign_keys = ON")
    # A log that filled the disk before a restart makes room for everything that is written from here on.
    connection.fold_log()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise UnusableState(
            f"the store {path} was written by a newer version (store version {version}, this software knows {VERSION})",
            "run the newer software, or restore the backup taken before the upgrade",
        )
    if version < VERSION:
        _upgrade(connection, version)
    if connection.execute("SELECT layout FROM opening").fetchone() != (_layout(connection),):
        raise damaged(f"the store {path}", "its schema is not what was written")


def _upgrade(connection: SqliteDatabase, version: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    for script in _scripts(version):
        for statement in statements(script):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("UPDATE opening SET layout = ?", (_layout(connection),))
    connection.execute("COMMIT")


def _layout(connection: SqliteDatabase) -> int:
    """A checksum of the schema: a flipped bit in it would give the stored rows another meaning."""
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name")
    return row_checksum(*(value for row in rows for value in row))


def _scripts(version: int) -> Iterator[str]:
    """The SQL scripts from this version to the current one: the schema for a new file, else the upgrades in order."""
    here = resources.files("aggregator.store")
    if version == 0:
        yield here.joinpath("schema.sql").read_text()
        return
    for step in range(version + 1, VERSION + 1):
        yield here.joinpath(f"upgrade-{step}.sql").read_text()


def statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one."""
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""

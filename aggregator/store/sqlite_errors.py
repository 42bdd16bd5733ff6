"""Every way in which SQLite can fail, as one sentence with a hint."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from dcfpca.errors import BadInput, DcfpcaError, UnusableState

LEAST_FREE = 64 << 10
"""Bytes of free space below which a disk counts as full."""

_RESTORE = "restore it from a backup (deploy/RUNBOOK.md); it has not been changed"
_FREE = "free some space; nothing acknowledged is lost"


class StoreFailed(DcfpcaError):
    """The store cannot be written or read any more; nothing that was acknowledged is lost."""


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
        and path.parent.is_dir()
        and free_bytes(path.parent) < LEAST_FREE
    )


def damaged(where: str, why: str) -> UnusableState:
    """The error of a file that is no store, or no longer one."""
    return UnusableState(f"{where} is damaged or is not a store: {why}", _RESTORE)


def disk_full(where: str) -> StoreFailed:
    """The error of a store whose disk has no space left."""
    return StoreFailed(f"{where} cannot be written: the disk is full", _FREE)


def free_bytes(directory: Path) -> int:
    """The space that this user may still write."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def _code(error: sqlite3.DatabaseError) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF

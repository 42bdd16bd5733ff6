"""A copy of the store, made while it is used: it appears under its name only when it is complete and was verified."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from aggregator.store.database import connect
from aggregator.store.examination import Findings, examine
from aggregator.store.sqlite_errors import explained, is_full
from dcfpca.atomic_files import sync_directory, sync_file
from dcfpca.errors import BadInput, DcfpcaError, UnusableState


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
        raise BadInput(f"the copy {out} cannot be written: {error.strerror}", _WRITABLE) from error
    finally:
        for suffix in ("", "-journal", "-wal", "-shm"):
            with suppress(OSError):
                beside.with_name(beside.name + suffix).unlink(missing_ok=True)
    return findings


_WRITABLE = "name a file in a directory that exists, is writable and has space"


def _verified_copy(source: Path, beside: Path) -> Findings:
    os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with (
        closing(_connected(source, f"{source.resolve().as_uri()}?mode=ro")) as live,
        closing(connect(beside)) as copy,
    ):
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
        raise _told(error, source, beside) from error


def _told(error: sqlite3.DatabaseError, source: Path, beside: Path) -> DcfpcaError:
    if is_full(error, beside):
        hint = "free space there or name another disk; nothing was left behind, and the store is unaffected"
        return UnusableState(f"the copy cannot be written to {beside.parent}: the disk is full", hint)
    return explained(error, source)

"""The state directory: one daemon at a time uses it, and waits while its disk is full."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dcfpca.atomic_files import free_bytes, make_private_directory
from dcfpca.errors import Refused, UnusableState

LEAST_FREE = 1 << 20
"""Bytes of free space below which a disk counts as full."""
RETRY_SECONDS = 2.0

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def is_disk_full(error: BaseException, directory: Path) -> bool:
    """Whether writing below this directory failed because there is no space left.

    SQLite calls it an I/O error, or cannot open the file, when the index of its log cannot be made.
    """
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        vague = code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
        return code == sqlite3.SQLITE_FULL or (vague and free_bytes(directory) < LEAST_FREE)
    return isinstance(error, OSError) and error.errno in _NO_SPACE


async def wait_for_space(directory: Path) -> None:
    """Return when there may be space again; where the cause is a quota that cannot be seen, after a while."""
    while True:
        await asyncio.sleep(RETRY_SECONDS)
        if free_bytes(directory) >= LEAST_FREE:
            return


def unusable_state(directory: Path, error: Exception) -> UnusableState:
    """What is wrong with the state in a directory, and what to do; never to put back an old copy of it."""
    if is_disk_full(error, directory):
        hint = "free space on its disk; nothing is lost, and the daemon goes on by itself"
        return UnusableState(f"the state in {directory} cannot be written: the disk is full", hint)
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_ERROR:
        hint = "install the version of the software that wrote it; nothing has been changed"
        return UnusableState(f"the state in {directory} is not laid out as this software expects: {error}", hint)
    if isinstance(error, OSError) or code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        hint = "correct the permissions and start the daemon again; nothing is lost"
        return UnusableState(f"the state in {directory} cannot be written: {error}", hint)
    hint = (
        "move the directory away and start with an empty one: this site joins the next run, and open runs go on "
        "without it; never put back an old copy, which holds seeds that may have been spent"
    )
    return UnusableState(f"the state in {directory} cannot be used: {error}", hint)


@contextmanager
def only_daemon(directory: Path) -> Iterator[None]:
    """Lock the state directory while the block runs; raises Refused when another daemon holds it."""
    make_private_directory(directory)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        hint = "stop the other daemon, or give this one its own [state] dir"
        raise Refused(f"another participant daemon uses the state directory {directory}", hint) from None
    try:
        yield
    finally:
        os.close(descriptor)

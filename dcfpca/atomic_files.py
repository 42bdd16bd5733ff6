"""Files and directories that appear complete or not at all, even when the process is killed while writing them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from dcfpca.errors import BadInput

T = TypeVar("T")


def make_directories(directory: Path) -> None:
    """Create the directory and its missing parents with mode 0700; `mkdir` gives that mode only to the last."""
    try:
        directory.mkdir(exist_ok=True, mode=0o700)
    except FileNotFoundError:
        make_directories(directory.parent)
        directory.mkdir(exist_ok=True, mode=0o700)


def make_private_directory(directory: Path) -> None:
    """Create the directory if needed and restrict it to its owner; BadInput when that is not possible."""
    try:
        make_directories(directory)
        directory.chmod(0o700)
    except OSError as error:
        hint = "name a directory that this user may write to"
        raise BadInput(f"the directory {directory} cannot be used: {error.strerror}", hint) from None


def atomic_write(path: Path, write: Callable[[BinaryIO], T]) -> T:
    """Write a temporary file, then rename it to `path`; returns what `write` returned.

    Survives a killed process. To survive a power cut, call `sync_file` and `sync_directory` as well.
    """
    # In the same directory, because a rename is atomic only within one file system.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            outcome = write(file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return outcome


def sync_file(path: Path) -> None:
    """Flush a file's content to the disk; does nothing when the file has been removed in the meantime."""
    with suppress(FileNotFoundError):
        _fsync(path)


def sync_directory(directory: Path) -> None:
    """Flush a directory to the disk: a new or renamed entry survives a power cut only after this."""
    _fsync(directory)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Yield a temporary directory to fill; it replaces `target` when the block succeeds and is removed otherwise."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    make_directories(temporary)
    try:
        yield temporary
        sync_directory(temporary)
        if target.exists():
            shutil.rmtree(target)
        temporary.replace(target)
        sync_directory(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def file_version(path: Path) -> tuple[int, int, int] | None:
    """A value that changes whenever the file is written or replaced; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def free_bytes(directory: Path) -> int:
    """The bytes that this user can still write to the directory, or to its nearest existing parent."""
    standing = next(path for path in (directory, *directory.resolve().parents) if path.exists())
    found = os.statvfs(standing)
    return found.f_bavail * found.f_frsize


def sha256_of_file(path: Path) -> bytes:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()

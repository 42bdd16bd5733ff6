"""Files that are there whole or not at all, whatever is killed meanwhile."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeVar

from dcfpca.errors import BadInput

T = TypeVar("T")


def make_private(directory: Path) -> None:
    """The directory, entered by its owner only."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)
    except OSError as error:
        hint = "name a directory that this user may write to"
        raise BadInput(f"the directory {directory} cannot be used: {error.strerror}", hint) from None


def write_whole(path: Path, write: Callable[[BinaryIO], T]) -> T:
    """Write beside, then take the place of `path` in one step. Not yet safe from a power cut: see `sync_file`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            outcome = write(file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return outcome


def sync_file(path: Path) -> None:
    """Bring a file's content to the disk; one that has gone meanwhile needs it no more."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def settle(directory: Path) -> None:
    """A new name survives a power cut only once its directory is on disk."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def directory_whole(target: Path) -> Iterator[Path]:
    """A directory to fill; it takes the place of `target` when the block ends well, and vanishes otherwise."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True, mode=0o700)
    try:
        yield temporary
        settle(temporary)
        if target.exists():
            shutil.rmtree(target)
        temporary.replace(target)
        settle(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def digest_of(path: Path) -> bytes:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()

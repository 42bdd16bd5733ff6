"""Writes keys and certificates atomically, and never replaces a key by mistake."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dcfpca.atomic_files import sync_directory
from dcfpca.errors import BadInput, Refused

PUBLIC = 0o644
SECRET = 0o600


def write_file(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """Write and replace atomically."""
    temporary = _write_beside(path, data, mode)
    temporary.replace(path)
    sync_directory(path.parent)


def write_new_key(path: Path, pem: bytes, *, force: bool = False) -> None:
    """Write a private key for its owner only; an existing file stays unless `force`."""
    if force:
        write_file(path, pem, SECRET)
        return
    temporary = _write_beside(path, pem, SECRET)
    try:
        # A link fails where a rename would replace, so no other process can lose its key between test and write.
        os.link(temporary, path)
    except FileExistsError:
        refuse_existing_key(path)
    finally:
        temporary.unlink()
    sync_directory(path.parent)


def refuse_existing_key(path: Path) -> None:
    """Raise if the file exists, because an overwritten key cannot be recovered."""
    if path.exists():
        hint = "choose another directory with --out, or replace the key with --force"
        raise Refused(f"there is a private key at {path} already", hint)


def make_directory(path: Path) -> None:
    """Make a directory accessible to its owner only; an existing one is left unchanged."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise BadInput(f"the directory {path} cannot be made: {error.strerror}", "name another directory") from None


def _write_beside(path: Path, data: bytes, mode: int) -> Path:
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}", "name a directory you may write to") from None
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    return Path(name)

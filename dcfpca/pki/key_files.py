"""Writing files so that a crash leaves the old one or the new one, and a key is never replaced by mistake."""

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
    """Raise if a file is there already: keys that are lost cannot be made again."""
    if path.exists():
        hint = "choose another directory with --out, or replace the key with --force"
        raise Refused(f"there is a private key at {path} already", hint)


def make_directory(path: Path) -> None:
    """Make a directory that only its owner enters; one that exists is left as it is."""
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

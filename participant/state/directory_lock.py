"""Lets one daemon at a time use a state directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dcfpca.atomic_files import make_private_directory
from dcfpca.errors import Refused


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

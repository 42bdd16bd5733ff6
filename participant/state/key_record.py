"""The key record of a run: a small file of two slots, overwritten in place so that spent keys do not stay on the disk.

SQLite is no place for it: its write-ahead log keeps old pages. Every write goes to the first slot and then, once that
is on the disk, to the second. A crash at any moment leaves one whole slot, and after a write nothing of the record
before is left in the file. Copy-on-write file systems and the wear levelling of flash keep old blocks all the same.
"""

from __future__ import annotations

import os
from pathlib import Path

from dcfpca.atomic_files import sync_directory

SLOTS = 2


def key_file(directory: Path, run_id: str) -> Path:
    """Where the key record of a run is."""
    return directory / f"run-{run_id}.keys"


def write_record(path: Path, record: bytes) -> None:
    """Store the record in place of the one before; on the disk when this returns. All records of a run are as long."""
    is_new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DSYNC, 0o600)
    try:
        for slot in range(SLOTS):
            _write_all(descriptor, record, slot * len(record))
        os.ftruncate(descriptor, SLOTS * len(record))
        if is_new:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        sync_directory(path.parent)


def read_slots(path: Path) -> tuple[bytes, ...]:
    """The two slots as they are, whole or not; none where there is no file."""
    if not path.exists():
        return ()
    content = path.read_bytes()
    half = len(content) // SLOTS
    return content[:half], content[half:]


def _write_all(descriptor: int, record: bytes, offset: int) -> None:
    written = 0
    while written < len(record):
        written += os.pwrite(descriptor, record[written:], offset + written)

"""The key record of a run: a small file of two slots, overwritten in place so that spent keys do not stay on the disk.

SQLite is no place for it: its write-ahead log keeps old pages. A record is written to one slot, which is on the disk
before anything is answered, and then to the other, which follows with the next record or the next `sync`. The slots
take turns in being first: the one that a write changes is never the one that the disk has whole, so a crash or a power
cut at any moment leaves one whole slot, with the last record that was answered with or a later one. After a write
nothing of the record before is left in the file; after `sync`, on the disk. Copy-on-write file systems and the wear
levelling of flash keep old blocks all the same.
"""

from __future__ import annotations

import os
from pathlib import Path

from dcfpca.atomic_files import sync_directory, sync_file
from dcfpca.secagg.state import newest_slot

SLOTS = 2


def key_file(directory: Path, run_id: str) -> Path:
    """Where the key record of a run is."""
    return directory / f"run-{run_id}.keys"


def noise_file(directory: Path, run_id: str) -> Path:
    """Where the key of the noise of a private run is."""
    return directory / f"run-{run_id}.noise"


def forget_record(path: Path) -> None:
    """Overwrite a record, then remove it; does nothing where there is none."""
    if path.exists():
        KeyRecord(path).write(bytes(path.stat().st_size // SLOTS))
        path.unlink()


class KeyRecord:
    """Writes the key record of one run. Two threads may use it, one that writes and one that syncs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: int | None = None  # the slot that the next write puts on the disk; None before the first write
        self._settled = False  # whether name and length of the file are on the disk

    def write(self, record: bytes) -> None:
        """Store the record in place of the one before; on the disk when this returns. All of a run are as long."""
        # An earlier process may have been cut off between its slots: then the newer one is the only one to keep.
        first = 1 - newest_slot(read_slots(self._path)) if self._first is None else self._first
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if self._first is None:
                os.fdatasync(descriptor)  # an earlier process may have left its second slot to the next sync
            _write_all(descriptor, record, first * len(record))
            os.fdatasync(descriptor)
            self._first = 1 - first  # also if the rest fails: this slot is the one that the disk has whole
            _write_all(descriptor, record, (1 - first) * len(record))
            os.ftruncate(descriptor, SLOTS * len(record))
            if not self._settled:
                os.fdatasync(descriptor)  # a new file must have its whole length, or its slots are not found
        finally:
            os.close(descriptor)
        if not self._settled:
            sync_directory(self._path.parent)  # the file may be new, or an earlier process cut off before this
            self._settled = True

    def sync(self) -> None:
        """Put both slots on the disk."""
        sync_file(self._path)


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

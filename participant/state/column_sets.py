"""The site's own key for recognising columns, and the sets of columns that runs went over; files beside its state.

A set that is not found counts as having every column: lost state makes the site more careful, never less.
"""

from __future__ import annotations

import os
from pathlib import Path

from dcfpca.atomic_files import atomic_write, make_private_directory, sync_directory, sync_file
from dcfpca.errors import BadInput
from dcfpca.secagg.column_sets import KEY_BYTES, ColumnSet

KEY_NAME = "columns.key"
_MOST_HELD = 8


def column_key(directory: Path, *, make: bool) -> bytes:
    """The key in this state directory. Without `make`, a missing one is replaced by a random key that is not kept."""
    path = directory / KEY_NAME
    if path.exists() and len(kept := path.read_bytes()) == KEY_BYTES:
        return kept
    key = os.urandom(KEY_BYTES)
    if make:
        make_private_directory(directory)
        _write(path, key)
    return key


class ColumnSets:
    """Keeps each set once, by its digest."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[bytes, ColumnSet | None] = {}

    def keep(self, columns: ColumnSet) -> None:
        """Save a set; on the disk when this returns."""
        path = self._path(columns.digest)
        if not path.exists():
            _write(path, columns.to_bytes())
        self._hold(columns.digest, columns)

    def find(self, digest: bytes) -> ColumnSet | None:
        """The set with this digest; None if it is not kept, or damaged."""
        if digest not in self._held:
            try:
                found = ColumnSet.from_bytes(self._path(digest).read_bytes())
                self._hold(digest, found if found.digest == digest else None)
            except (OSError, BadInput):
                self._hold(digest, None)
        return self._held[digest]

    def _hold(self, digest: bytes, found: ColumnSet | None) -> None:
        while len(self._held) >= _MOST_HELD:
            del self._held[next(iter(self._held))]
        self._held[digest] = found

    def _path(self, digest: bytes) -> Path:
        return self._directory / f"columns-{digest.hex()}"


def _write(path: Path, content: bytes) -> None:
    atomic_write(path, lambda file: file.write(content))
    path.chmod(0o600)
    sync_file(path)
    sync_directory(path.parent)

"""Updates that came whole, appended to one file per attempt.

A file for each of them would be simpler, but with a thousand participants it took an eighth of the aggregator's CPU:
ext4 does not use the inode of a deleted file again for some seconds, and passes over all of these whenever it makes a
file.

Each update follows a line with its participant, digest and size. A line that a crash or a full disk cut off, or whose
bytes are not those of its digest, does not count; at the end it is cut away before the next update is written. Of two
updates with the same line the later one counts.

A file whose updates are over is wiped and used again: writing over the pages that it has takes a tenth of the time of
new ones, which were a seventh of the aggregator's CPU with ten updates of 3.6 MB.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from dcfpca.chunked_vectors import Buffer
from dcfpca.wire_constants import CHUNK_BYTES

_LINE = re.compile(rb"([+-])(\S+)@([0-9a-f]{64}) (\d{1,18})\n")
_KEPT, _FORGOTTEN = b"+", b"-"
_LONGEST_LINE = 1 << 10
_ZEROS = bytes(CHUNK_BYTES)

Name = tuple[str, bytes]
"""The participant and the digest of an update."""


class Place(NamedTuple):
    """Where an update lies in the file: its line, its bytes, and how many these are."""

    line: int
    start: int
    size: int


class AppendedUpdates:
    """The file of one attempt. Where its updates lie is read once, when this is made, and then held in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_clean = not path.exists()
        self.places, self._end = _read(path)

    def use_again(self, wiped: Path) -> None:
        """Take the file that `wipe` made, unless this attempt has one."""
        if not self._path.exists():
            wiped.rename(self._path)

    def append(self, updates: Iterable[tuple[Name, Buffer]]) -> None:
        """Write these updates; none of them counts if that fails, and the next call cuts away what was written."""
        places, end = {}, self._end
        with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            if not self._is_clean:
                # What is behind the end was sent by participants, and would be read as lines after the next restart.
                file.truncate(end)
            self._is_clean = False
            file.seek(end)
            for (participant, digest), data in updates:
                line = b"%s%s@%s %d\n" % (_KEPT, participant.encode(), digest.hex().encode(), len(data))
                file.write(line)
                file.write(data)
                places[participant, digest] = Place(end, end + len(line), len(data))
                end += len(line) + len(data)
        self.places |= places
        self._end, self._is_clean = end, True

    def chunks(self, name: Name) -> Iterator[tuple[int, bytes]]:
        """The content of an update with its offsets, in order; nothing when there is none."""
        if (place := self.places.get(name)) is None:
            return
        with self._path.open("rb") as file:
            file.seek(place.start)
            for offset in range(0, place.size, CHUNK_BYTES):
                yield offset, file.read(min(CHUNK_BYTES, place.size - offset))

    def forget(self, name: Name) -> None:
        """Do not count this update any more, also after a restart."""
        if (place := self.places.pop(name, None)) is not None:
            with self._path.open("r+b") as file:
                file.seek(place.line)
                file.write(_FORGOTTEN)


def wipe(path: Path) -> None:
    """Write zeros over all of the file."""
    with path.open("r+b", buffering=0) as file:
        rest = path.stat().st_size
        while rest:
            rest -= file.write(_ZEROS[:rest] if rest < len(_ZEROS) else _ZEROS) or 0


def _read(path: Path) -> tuple[dict[Name, Place], int]:
    """Where each update lies, and where the next one goes: after the last of those that are whole or forgotten."""
    places: dict[Name, Place] = {}
    end = line_at = 0
    if not path.exists():
        return places, end
    size = path.stat().st_size
    with path.open("rb") as file:
        while (found := _LINE.fullmatch(line := file.readline(_LONGEST_LINE))) is not None:
            mark, participant, digest, count = found.groups()
            place = Place(line_at, line_at + len(line), int(count))
            line_at = place.start + place.size
            if line_at > size:
                break
            name = participant.decode(errors="replace"), bytes.fromhex(digest.decode())
            places.pop(name, None)
            if mark == _FORGOTTEN:
                end = line_at
            elif _digest(file, place.size) == name[1]:
                places[name], end = place, line_at
            file.seek(line_at)
    return places, end


def _digest(file: BinaryIO, size: int) -> bytes:
    """The SHA-256 of so many bytes from here on."""
    sha = hashlib.sha256()
    for start in range(0, size, CHUNK_BYTES):
        sha.update(file.read(min(CHUNK_BYTES, size - start)))
    return sha.digest()

"""Updates that came whole, appended to one file per attempt.

A file for each of them would be simpler, but with a thousand participants it took an eighth of the aggregator's CPU:
ext4 does not use the inode of a deleted file again for some seconds, and passes over all of these whenever it makes a
file.

Each update follows a line with its participant, digest and size. A line that a crash or a full disk cut off, or whose
bytes are not all there, ends what is read; it is cut away before the next update is written. Of two updates with the
same line the later one counts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dcfpca.wire.constants import CHUNK_BYTES
from dcfpca.wire.tensors import Buffer

_LINE = re.compile(rb"([+-])(\S+)@([0-9a-f]{64}) (\d{1,18})\n")
_KEPT, _FORGOTTEN = b"+", b"-"
_LONGEST_LINE = 1 << 10

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
        self.places, self._end = _read(path)

    def append(self, updates: Iterable[tuple[Name, Buffer]]) -> None:
        """Write these updates; none of them counts if that fails, and the next call cuts away what was written."""
        places, end = {}, self._end
        with os.fdopen(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            # What is behind the end was sent by participants, and would be read as lines after the next restart.
            file.truncate(end)
            file.seek(end)
            for (participant, digest), data in updates:
                line = b"%s%s@%s %d\n" % (_KEPT, participant.encode(), digest.hex().encode(), len(data))
                file.write(line)
                file.write(data)
                places[participant, digest] = Place(end, end + len(line), len(data))
                end += len(line) + len(data)
        self.places |= places
        self._end = end

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


def _read(path: Path) -> tuple[dict[Name, Place], int]:
    """Where each update lies, and where the next one goes."""
    places: dict[Name, Place] = {}
    end = 0
    if not path.exists():
        return places, end
    size = path.stat().st_size
    with path.open("rb") as file:
        while (found := _LINE.fullmatch(line := file.readline(_LONGEST_LINE))) is not None:
            mark, participant, digest, count = found.groups()
            place = Place(end, end + len(line), int(count))
            if place.start + place.size > size:
                break
            end = place.start + place.size
            name = participant.decode(errors="replace"), bytes.fromhex(digest.decode())
            places.pop(name, None)
            if mark == _KEPT:
                places[name] = place
            file.seek(end)
    return places, end

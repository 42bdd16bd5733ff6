"""Files of the updates of open attempts: written once, read at most once, deleted when their sum is formed.

They lie beside the database and not in it, so that the megabytes of a round do not pass through its log. An update that
comes in several chunks has a file of its own, which is continued where it stops; those that come whole share one file.
An update whose content matches its digest is complete. After a power cut it may be missing or torn; its digest shows
it, and the round is reopened.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aggregator.store.database import StoreFailed
from dcfpca.atomic_files import make_directories
from dcfpca.errors import BadMessage
from dcfpca.run_references import AttemptRef
from dcfpca.wire.constants import CHUNK_BYTES
from dcfpca.wire.tensors import Buffer

_APPENDED, _DISCARDED = "appended", "discarded-"
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
    """The updates of one attempt that came whole, appended to one file.

    A file for each of them would be simpler, but with a thousand participants it took an eighth of the aggregator's
    CPU: ext4 does not use the inode of a deleted file again for some seconds, and passes over all of these whenever it
    makes a file.

    Each update follows a line with its participant, digest and size. A line that a crash or a full disk cut off, or
    whose bytes are not all there, ends what is read; it is cut away before the next update is written. Of two updates
    with the same line the later one counts.
    """

    def __init__(self, path: Path) -> None:
        """Read where the updates lie, once; from then on that is held in memory."""
        self._path, self._end = path, 0
        self.places: dict[Name, Place] = {}
        if not path.exists():
            return
        size = path.stat().st_size
        with path.open("rb") as file:
            while (found := _LINE.fullmatch(line := file.readline(_LONGEST_LINE))) is not None:
                mark, participant, digest, count = found.groups()
                place = Place(self._end, self._end + len(line), int(count))
                if place.start + place.size > size:
                    break
                self._end = place.start + place.size
                name = participant.decode(errors="replace"), bytes.fromhex(digest.decode())
                self.places.pop(name, None)
                if mark == _KEPT:
                    self.places[name] = place
                file.seek(self._end)

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
        """No longer count this update, also after a restart."""
        if (place := self.places.pop(name, None)) is not None:
            with self._path.open("r+b") as file:
                file.seek(place.line)
                file.write(_FORGOTTEN)


@dataclass(frozen=True, slots=True)
class UpdateKey:
    """Names one update of one participant in one attempt."""

    ref: AttemptRef
    participant: str
    sha256: bytes


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What is known of one attempt: by participant, the digest of each update of which something was received, and how
    many bytes; and the updates that came whole."""

    received: dict[str, dict[bytes, int]]
    appended: AppendedUpdates

    def note(self, key: UpdateKey, size: int) -> None:
        """So many bytes of this update were received."""
        own = self.received.setdefault(key.participant, {})
        own[key.sha256] = max(own.get(key.sha256, 0), size)


class UpdateFiles:
    """One directory per run and attempt: one file for all updates that came whole, and one for each of the others.

    The progress of attempts that are `loaded` is held in memory: for those, `received` and `has_other` answer without
    the disk, from any thread.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.loaded: dict[AttemptRef, _Attempt] = {}

    def load(self, ref: AttemptRef) -> None:
        """Read from the disk what was received in this open attempt, and hold it in memory until it is discarded."""
        if ref not in self.loaded:
            self.loaded[ref] = self._on_disk(ref)

    def add(self, key: UpdateKey, offset: int, data: Buffer) -> None:
        """Write one chunk, which must not leave a gap; writing the same chunk again changes nothing."""
        self.load(key.ref)
        if offset > self.received(key):
            raise BadMessage(f"a piece at byte {offset} came where byte {self.received(key)} was due")
        with self._writing(key.ref):
            _write(self._path(key), offset, data)
        self._attempt(key.ref).note(key, offset + len(data))

    def add_last(self, chunks: Sequence[tuple[UpdateKey, int, Buffer]]) -> None:
        """Write the last chunks of updates; where that is the whole update, all of an attempt together."""
        whole: dict[AttemptRef, list[tuple[UpdateKey, Buffer]]] = {}
        for key, offset, data in chunks:
            if offset:
                self.add(key, offset, data)
            else:
                whole.setdefault(key.ref, []).append((key, data))
        for ref, updates in whole.items():
            self.load(ref)
            attempt = self.loaded[ref]
            with self._writing(ref):
                make_directories(self._attempt_directory(ref))
                attempt.appended.append(((key.participant, key.sha256), data) for key, data in updates)
            for key, data in updates:
                attempt.note(key, len(data))

    @contextmanager
    def _writing(self, ref: AttemptRef) -> Iterator[None]:
        """Raise StoreFailed when a file cannot be written; what the disk has of the attempt is then read again."""
        try:
            yield
        except OSError as error:
            self.loaded.pop(ref, None)
            hint = "free some space; nothing acknowledged is lost"
            raise StoreFailed(f"an update cannot be kept: {error.strerror}", hint) from error

    def received(self, key: UpdateKey) -> int:
        """The bytes received of this update, rounded down to whole numbers because a crash may tear a chunk."""
        return self._attempt(key.ref).received.get(key.participant, {}).get(key.sha256, 0) // 8 * 8

    def has_other(self, key: UpdateKey) -> bool:
        """True if part of a different update of the same participant was received in this attempt."""
        return bool(self._attempt(key.ref).received.get(key.participant, {}).keys() - {key.sha256})

    def _attempt(self, ref: AttemptRef) -> _Attempt:
        return self.loaded.get(ref) or self._on_disk(ref)

    def _on_disk(self, ref: AttemptRef) -> _Attempt:
        directory = self._attempt_directory(ref)
        found = _Attempt({}, AppendedUpdates(directory / _APPENDED))
        for path in directory.glob("*@*"):
            participant, _, digest = path.name.rpartition("@")
            found.note(UpdateKey(ref, participant, bytes.fromhex(digest)), path.stat().st_size)
        for (participant, sha256), place in found.appended.places.items():
            found.note(UpdateKey(ref, participant, sha256), place.size)
        return found

    def size(self, key: UpdateKey) -> int:
        """Bytes that are kept of this update; 0 when there are none."""
        if (place := self._attempt(key.ref).appended.places.get((key.participant, key.sha256))) is not None:
            return place.size
        path = self._path(key)
        return path.stat().st_size if path.exists() else 0

    def chunks(self, key: UpdateKey) -> Iterator[tuple[int, bytes]]:
        """The content of an update with its offsets, in order; nothing when nothing is kept of it."""
        appended, name = self._attempt(key.ref).appended, (key.participant, key.sha256)
        return appended.chunks(name) if name in appended.places else _file_chunks(self._path(key))

    def digest_so_far(self, key: UpdateKey) -> hashlib._Hash:
        """A SHA-256 over the bytes received so far, to be updated with those that follow."""
        sha, received = hashlib.sha256(), self.received(key)
        for offset, data in self.chunks(key):
            sha.update(data[: received - offset])
        return sha

    def read_verified(self, key: UpdateKey, take: Callable[[int, bytes], None]) -> bool:
        """Pass every chunk to `take` in one pass over the file; returns whether the content matches the digest."""
        sha = hashlib.sha256()
        for offset, data in self.chunks(key):
            sha.update(data)
            take(offset, data)
        return sha.digest() == key.sha256

    def forget(self, key: UpdateKey) -> None:
        """Delete an update whose content does not match its digest."""
        attempt = self._attempt(key.ref)
        self._path(key).unlink(missing_ok=True)
        attempt.appended.forget((key.participant, key.sha256))
        attempt.received.get(key.participant, {}).pop(key.sha256, None)

    def discard(self, ref: AttemptRef) -> None:
        """Set all updates of this run up to this attempt aside for `sweep`; chunks may arrive after an attempt is over.

        Deleting files of megabytes takes milliseconds, for which nobody should have to wait.
        """
        for directory in (self.directory / ref.run_id).glob("*.*"):
            round, attempt = (int(part) for part in directory.name.split("."))
            if AttemptRef(ref.run_id, round, attempt) > ref:
                continue
            try:
                directory.rename(directory.with_name(_DISCARDED + directory.name.replace(".", "-")))
            except OSError:  # one of this name was set aside before, and chunks came since
                shutil.rmtree(directory, ignore_errors=True)
        for loaded in [one for one in self.loaded if one.run_id == ref.run_id and one <= ref]:
            del self.loaded[loaded]

    def sweep(self, run_id: str) -> None:
        """Delete what was discarded of this run."""
        for directory in (self.directory / run_id).glob(f"{_DISCARDED}*"):
            shutil.rmtree(directory, ignore_errors=True)

    def discard_run(self, run_id: str) -> None:
        """Delete all updates of a run that is over, with its directory."""
        shutil.rmtree(self.directory / run_id, ignore_errors=True)
        for loaded in [one for one in self.loaded if one.run_id == run_id]:
            del self.loaded[loaded]

    def keep_only(self, run_ids: Collection[str]) -> None:
        """Delete the updates of all other runs: those that ended while another aggregator served."""
        for directory in self.directory.glob("*"):
            if directory.name not in run_ids:
                shutil.rmtree(directory, ignore_errors=True)

    def _attempt_directory(self, ref: AttemptRef) -> Path:
        return self.directory / ref.run_id / f"{ref.round}.{ref.attempt}"

    def _path(self, key: UpdateKey) -> Path:
        return self._attempt_directory(key.ref) / f"{key.participant}@{key.sha256.hex()}"


def _file_chunks(path: Path) -> Iterator[tuple[int, bytes]]:
    if not path.exists():
        return
    offset = 0
    with path.open("rb") as file:
        while data := file.read(CHUNK_BYTES):
            yield offset, data
            offset += len(data)


def _write(path: Path, offset: int, data: Buffer) -> None:
    flags = os.O_WRONLY | os.O_CREAT
    try:
        file = os.open(path, flags, 0o600)
    except FileNotFoundError:
        make_directories(path.parent)
        file = os.open(path, flags, 0o600)
    try:
        rest, place = memoryview(data), offset
        while rest:
            written = os.pwrite(file, rest, place)
            rest, place = rest[written:], place + written
    finally:
        os.close(file)

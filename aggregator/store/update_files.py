"""Updates of the open attempts, as files: written once, read at most twice, deleted when their sum is formed.

They lie beside the database and not in it, so that a round's megabytes do not pass through its log. A file that holds
what its digest says is an update; a shorter one goes on where it stops. After a power cut a file may be missing or
torn: its digest tells, and the round is reopened.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aggregator.store.database import StoreFailed
from dcfpca.errors import BadMessage
from dcfpca.wire_constants import CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class UploadKey:
    """Names one update of one attempt."""

    run_id: str
    round: int
    attempt: int
    participant: str
    sha256: bytes


Attempt = tuple[str, int, int]
"""Run, round, attempt."""
Arrived = dict[str, dict[bytes, int]]
"""By participant, the digest of each update of which something has arrived, and how many bytes."""


class Spool:
    """One directory per run and attempt, one file per update.

    What has arrived of an attempt that was looked at is known without the disk: `is_known` tells for which attempts
    `received` and `has_other` answer at once, from any thread.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[Attempt, Arrived] = {}

    def is_known(self, key: UploadKey) -> bool:
        """Whether this attempt was looked at."""
        return _attempt(key) in self._known

    def look(self, key: UploadKey) -> None:
        """Find out what has arrived of this attempt, which is open; it is kept in mind until the attempt is over."""
        if not self.is_known(key):
            self._known[_attempt(key)] = self._on_disk(key)

    def add(self, key: UploadKey, offset: int, data: bytes) -> None:
        """Keep one piece, which must not leave a gap; writing the same piece again changes nothing."""
        self.look(key)
        if offset > self.received(key):
            raise BadMessage(f"a piece at byte {offset} came where byte {self.received(key)} was due")
        try:
            _write(self._path(key), offset, data)
        except OSError as error:
            self._known.pop(_attempt(key), None)
            hint = "free some space; nothing acknowledged is lost"
            raise StoreFailed(f"an update cannot be kept: {error.strerror}", hint) from error
        own = self._arrived(key).setdefault(key.participant, {})
        own[key.sha256] = max(own.get(key.sha256, 0), offset + len(data))

    def received(self, key: UploadKey) -> int:
        """How many bytes of this update have arrived; of a piece torn by a crash only whole numbers count."""
        return self._arrived(key).get(key.participant, {}).get(key.sha256, 0) // 8 * 8

    def has_other(self, key: UploadKey) -> bool:
        """Whether a different update of the same participant has begun to arrive in this attempt."""
        return bool(self._arrived(key).get(key.participant, {}).keys() - {key.sha256})

    def _arrived(self, key: UploadKey) -> Arrived:
        known = self._known.get(_attempt(key))
        return self._on_disk(key) if known is None else known

    def _on_disk(self, key: UploadKey) -> Arrived:
        found: Arrived = {}
        for path in self._path(key).parent.glob("*@*"):
            participant, _, digest = path.name.rpartition("@")
            found.setdefault(participant, {})[bytes.fromhex(digest)] = path.stat().st_size
        return found

    def chunks(self, key: UploadKey) -> Iterator[tuple[int, bytes]]:
        """The pieces of an update in order."""
        path, offset = self._path(key), 0
        if not path.exists():
            return
        with path.open("rb") as file:
            while data := file.read(CHUNK_BYTES):
                yield offset, data
                offset += len(data)

    def digest_so_far(self, key: UploadKey) -> hashlib._Hash:
        """SHA-256 over what has arrived, to be continued with the rest."""
        sha, arrived = hashlib.sha256(), self.received(key)
        for offset, data in self.chunks(key):
            sha.update(data[: arrived - offset])
        return sha

    def is_whole(self, key: UploadKey) -> bool:
        """Whether the file holds what the digest says."""
        sha = hashlib.sha256()
        for _, data in self.chunks(key):
            sha.update(data)
        return sha.digest() == key.sha256

    def forget(self, key: UploadKey) -> None:
        """Drop an update that turned out wrong."""
        self._path(key).unlink(missing_ok=True)
        self._arrived(key).get(key.participant, {}).pop(key.sha256, None)

    def discard(self, run_id: str, round: int, attempt: int) -> None:
        """Drop all updates of this run up to this attempt; a piece may have come in after an attempt was over."""
        for directory in (self._directory / run_id).glob("*.*"):
            there = tuple(int(part) for part in directory.name.split("."))
            if there <= (round, attempt):
                shutil.rmtree(directory, ignore_errors=True)
        over = [known for known in self._known if known[0] == run_id and known[1:] <= (round, attempt)]
        for known in over:
            del self._known[known]

    def _path(self, key: UploadKey) -> Path:
        attempt = self._directory / key.run_id / f"{key.round}.{key.attempt}"
        return attempt / f"{key.participant}@{key.sha256.hex()}"


def _attempt(key: UploadKey) -> Attempt:
    return key.run_id, key.round, key.attempt


def _write(path: Path, offset: int, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT
    try:
        file = os.open(path, flags, 0o600)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = os.open(path, flags, 0o600)
    try:
        rest, place = memoryview(data), offset
        while rest:
            written = os.pwrite(file, rest, place)
            rest, place = rest[written:], place + written
    finally:
        os.close(file)

"""Updates of the open attempts, as files: written once, read at most twice, deleted when their sum is formed.

They lie beside the database and not in it, so that a round's megabytes do not pass through its log. A file that holds
what its digest says is an update; a shorter one goes on where it stops. After a power cut a file may be missing or
torn: its digest tells, and the round is reopened.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from aggregator.store.database import StoreFailed
from dcfpca.errors import BadMessage
from dcfpca.names import CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class UploadKey:
    """Names one update of one attempt."""

    run_id: str
    round: int
    attempt: int
    participant: str
    sha256: bytes


class Spool:
    """One directory per run and attempt, one file per update."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def add(self, key: UploadKey, offset: int, data: bytes) -> None:
        """Keep one piece, which must not leave a gap; writing the same piece again changes nothing."""
        path = self._path(key)
        if offset > self.received(key):
            raise BadMessage(f"a piece at byte {offset} came where byte {self.received(key)} was due")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with path.open("r+b" if path.exists() else "wb") as file:
                file.seek(offset)
                file.write(data)
        except OSError as error:
            hint = "free some space; nothing acknowledged is lost"
            raise StoreFailed(f"an update cannot be kept: {error.strerror}", hint) from error

    def received(self, key: UploadKey) -> int:
        """How many bytes of this update have arrived; of a piece torn by a crash only whole numbers count."""
        path = self._path(key)
        return path.stat().st_size // 8 * 8 if path.exists() else 0

    def has_other(self, key: UploadKey) -> bool:
        """Whether a different update of the same participant has begun to arrive in this attempt."""
        mine = self._path(key)
        return any(path != mine for path in mine.parent.glob(f"{key.participant}@*"))

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

    def discard(self, run_id: str, round: int, attempt: int) -> None:
        """Drop all updates of this run up to this attempt; a piece may have come in after an attempt was over."""
        for directory in (self._directory / run_id).glob("*.*"):
            there = tuple(int(part) for part in directory.name.split("."))
            if there <= (round, attempt):
                shutil.rmtree(directory, ignore_errors=True)

    def _path(self, key: UploadKey) -> Path:
        attempt = self._directory / key.run_id / f"{key.round}.{key.attempt}"
        return attempt / f"{key.participant}@{key.sha256.hex()}"

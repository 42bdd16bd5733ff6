"""Files of exported reconstructions, beside the store: `<store>.exports/<run>/<participant>/<artifact>`."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from dcfpca.atomic_files import make_directories
from dcfpca.errors import BadMessage
from dcfpca.wire.constants import ARTIFACTS, CHUNK_BYTES


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """The header of one exported file, as its participant announced it."""

    run_id: str
    participant: str
    artifact: str
    size: int
    sha256: bytes


class ExportFiles:
    """The exported files of one store. A file appears under its name only when complete and matching its digest."""

    def __init__(self, store: Path) -> None:
        self.directory = store.with_name(f"{store.name}.exports")

    async def write(self, announced: ExportedFile, chunks: AsyncIterator[tuple[int, bytes]]) -> None:
        """Store a file from its chunks (offset, bytes); raises BadMessage when they are not what was announced."""
        target = self._path(announced.run_id, announced.participant, announced.artifact)
        make_directories(target.parent)
        # A name of its own: when a connection broke, the next one may come before the old one is known to be dead.
        partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.partial")
        try:
            await _write_partial(partial, announced, chunks)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def read(self, run_id: str, participant: str, artifact: str, offset: int) -> Iterator[tuple[int, bytes]] | None:
        """The chunks of a file from this byte on; None when it was not exported."""
        path = self._path(run_id, participant, artifact)
        return _chunks(path, offset) if artifact in ARTIFACTS and path.is_file() else None

    def holds(self, run_id: str, participant: str, artifact: str, size: int) -> bool:
        """Whether this file is here, complete."""
        path = self._path(run_id, participant, artifact)
        return path.is_file() and path.stat().st_size == size

    def delete_run(self, run_id: str) -> None:
        """Delete every exported file of a run."""
        shutil.rmtree(self.directory / run_id, ignore_errors=True)

    def _path(self, run_id: str, participant: str, artifact: str) -> Path:
        return self.directory / run_id / participant / artifact


async def _write_partial(partial: Path, announced: ExportedFile, chunks: AsyncIterator[tuple[int, bytes]]) -> None:
    sha, size = hashlib.sha256(), 0
    with partial.open("wb") as file:
        async for offset, data in chunks:
            size += len(data)
            if offset != size - len(data) or size > announced.size:
                raise BadMessage("the pieces of the file are not in order, or more than announced")
            sha.update(data)
            await asyncio.to_thread(file.write, data)
        file.flush()
        await asyncio.to_thread(os.fsync, file.fileno())
    if size != announced.size or sha.digest() != announced.sha256:
        raise BadMessage(f"the file {announced.artifact} does not match its announced size and digest")


def _chunks(path: Path, offset: int) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        file.seek(min(offset, path.stat().st_size))
        while data := file.read(CHUNK_BYTES):
            yield offset, data
            offset += len(data)

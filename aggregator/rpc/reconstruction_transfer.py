"""Reconstructions on their way in (from public participants) and out (to the operator), as files beside the store."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from aggregator.config import Limits
from aggregator.rpc.status_errors import Missing
from aggregator.rpc.wire_events import receipt
from aggregator.run import events
from aggregator.run.effects import Reply
from aggregator.run.exports import is_answered
from aggregator.run_registry import House
from aggregator.runner import Runner
from aggregator.trust import Caller
from dcfpca.artifacts import ARTIFACTS
from dcfpca.errors import BadMessage
from dcfpca.fate import Fate
from dcfpca.logs import log
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import Chunk, Receipt
from dcfpca.wire_constants import CHUNK_BYTES


def export_path(store: Path, run_id: str, participant: str, artifact: str) -> Path:
    """Where an exported file lies."""
    return store.with_name(f"{store.name}.exports") / run_id / participant / artifact


class ExportIntake:
    """Takes one file or refusal; a file appears under its name only when it is whole and matches its digest."""

    def __init__(self, runner: Runner, house: House, who: Caller, limits: Limits) -> None:
        self._runner, self._house, self._who, self._limits = runner, house, who, limits
        self._keeper = house.keeper

    async def take(self, first: pb.ExportPart, parts: AsyncIterator[pb.ExportPart]) -> Receipt:
        """Everything up to the receipt."""
        if first.WhichOneof("part") == "refusal":
            return await self._refusal(first.refusal)
        header = first.header
        refused = self._unwanted(header)
        if refused:
            return receipt(refused)
        await self._write(header, parts)
        event = events.FileExported(
            at=self._keeper.now(),
            participant=self._who.name,
            export_id=header.export_id,
            artifact=header.artifact,
            size=header.size,
            sha256=header.sha256,
        )
        return receipt(await self._house.finish(self._exported(event)))

    async def _exported(self, event: events.FileExported) -> Reply | None:
        reply = await self._runner.post(event)
        if reply and reply.fate is Fate.ACCEPTED:
            detail = {"artifact": event.artifact, "size": event.size, "sha256": event.sha256.hex()}
            await self._record("reconstruction_exported", **detail)
        return reply

    async def _refusal(self, refusal: pb.ExportRefusal) -> Receipt:
        event = events.ExportRefused(
            at=self._keeper.now(),
            participant=self._who.name,
            export_id=refusal.export_id,
            reason=refusal.reason[:1000] or "no reason given",
        )
        return receipt(await self._house.finish(self._refused(event)))

    async def _refused(self, event: events.ExportRefused) -> Reply | None:
        reply = await self._runner.post(event)
        if reply and reply.fate is Fate.ACCEPTED:
            log("export_refused", run=self._runner.run.run_id, participant=self._who.name, reason=event.reason)
            await self._record("export_refused", reason=event.reason)
        return reply

    async def _record(self, action: str, **detail: object) -> None:
        run_id = self._runner.run.run_id
        await self._keeper.record(action, actor=str(self._who.identity), run_id=run_id, **detail)

    def _unwanted(self, header: pb.ExportHeader) -> Reply | None:
        run = self._runner.run
        if self._who.name not in run.cohort:
            return Reply(Fate.REJECTED, "this participant is not in the run's cohort")
        if run.export is None or run.export.export_id != header.export_id:
            return Reply(Fate.REJECTED, "no reconstruction was asked for under this export id")
        if run.enrolled[self._who.name].private:
            return Reply(Fate.REJECTED, "this participant enrolled as private; its reconstruction is not taken")
        if header.artifact not in ARTIFACTS or header.size > self._limits.max_export_mib << 20:
            return Reply(Fate.REJECTED, f"{header.artifact[:40]} is not an artifact, or is larger than allowed")
        return Reply(Fate.DUPLICATE, "already answered") if is_answered(run.export, self._who.name) else None

    async def _write(self, header: pb.ExportHeader, parts: AsyncIterator[pb.ExportPart]) -> None:
        target = export_path(self._keeper.store.path, self._runner.run.run_id, self._who.name, header.artifact)
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A name of its own: a connection that broke may not be known to be dead when the next one comes.
        partial = target.with_name(f"{target.name}.{secrets.token_hex(4)}.partial")
        sha, size = hashlib.sha256(), 0
        try:
            with partial.open("wb") as file:
                async for part in parts:
                    data = part.chunk.data
                    size += len(data)
                    if part.chunk.offset != size - len(data) or size > header.size:
                        raise BadMessage("the pieces of the file are not in order, or more than announced")
                    sha.update(data)
                    await asyncio.to_thread(file.write, data)
                file.flush()
                os.fsync(file.fileno())
            if size != header.size or sha.digest() != header.sha256:
                raise BadMessage(f"the file {header.artifact} does not match its announced size and digest")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def read_export(store: Path, run_id: str, participant: str, artifact: str, offset: int) -> Iterator[Chunk]:
    """The pieces of an exported file from this byte on."""
    path = export_path(store, run_id, participant, artifact)
    if artifact not in ARTIFACTS or not path.is_file():
        raise Missing(f"{participant} has not exported {artifact} of run {run_id}")
    with path.open("rb") as file:
        file.seek(min(offset, path.stat().st_size))
        while data := file.read(CHUNK_BYTES):
            yield Chunk(offset=offset, data=data)
            offset += len(data)

"""Receives the reconstructions of public participants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from aggregator.config import Limits
from aggregator.rpc.answers import receipt
from aggregator.run import events
from aggregator.run.attempts import OUTSIDER, Reply
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.store.export_files import ExportedFile
from aggregator.trust import Caller
from dcfpca.logs import log
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1.types_pb2 import Receipt
from dcfpca.wire.constants import ARTIFACTS
from dcfpca.wire.receipt import Fate


class ExportIntake:
    """Receives one file of a reconstruction, or a refusal."""

    def __init__(self, runner: Runner, registry: RunRegistry, who: Caller, limits: Limits) -> None:
        self._runner, self._registry, self._who, self._limits = runner, registry, who, limits
        self._store = registry.store

    async def take(self, first: pb.ExportPart, parts: AsyncIterator[pb.ExportPart]) -> Receipt:
        """Store the file or the refusal, and return the receipt."""
        if first.WhichOneof("part") == "refusal":
            return await self._refusal(first.refusal)
        header, run_id = first.header, self._runner.run.run_id
        if reply := self._reply_to(header):
            return receipt(reply)
        announced = ExportedFile(run_id, self._who.name, header.artifact, header.size, header.sha256)
        await self._store.store.exports.write(announced, _chunks(parts))
        event = events.FileExported(
            at=self._store.now(),
            participant=self._who.name,
            export_id=header.export_id,
            artifact=header.artifact,
            size=header.size,
            sha256=header.sha256,
        )
        detail: dict[str, Any] = {"artifact": event.artifact, "size": event.size, "sha256": event.sha256.hex()}
        return receipt(await self._registry.complete(self._recorded(event, "reconstruction_exported", **detail)))

    async def _refusal(self, refusal: pb.ExportRefusal) -> Receipt:
        event = events.ExportRefused(
            at=self._store.now(),
            participant=self._who.name,
            export_id=refusal.export_id,
            reason=refusal.reason[:1000] or "no reason given",
        )
        return receipt(await self._registry.complete(self._recorded(event, "export_refused", reason=event.reason)))

    async def _recorded(self, event: events.Event, action: str, **detail: Any) -> Reply | None:
        """Post the event; if it is accepted, log it and enter it into the audit log."""
        run_id, reply = self._runner.run.run_id, await self._runner.post(event)
        if reply and reply.fate is Fate.ACCEPTED:
            log(action, run=run_id, participant=self._who.name, **detail)
            await self._store.record(action, actor=self._who.title, run_id=run_id, **detail)
        return reply

    def _reply_to(self, header: pb.ExportHeader) -> Reply | None:
        """The reply before any byte is read; None when the file is wanted."""
        run = self._runner.run
        if self._who.name not in run.cohort:
            return OUTSIDER
        if run.export is None or run.export.export_id != header.export_id:
            return Reply(Fate.REJECTED, "no reconstruction was asked for under this export id")
        if run.enrolled[self._who.name].private:
            return Reply(Fate.REJECTED, "this participant enrolled as private; its reconstruction is not taken")
        if header.artifact not in ARTIFACTS or header.size > self._limits.max_export_mib << 20:
            return Reply(Fate.REJECTED, f"{header.artifact[:40]} is not an artifact, or is larger than allowed")
        return Reply(Fate.DUPLICATE, "already answered") if run.export.is_answered_by(self._who.name) else None


async def _chunks(parts: AsyncIterator[pb.ExportPart]) -> AsyncIterator[tuple[int, bytes]]:
    async for part in parts:
        yield part.chunk.offset, part.chunk.data

"""AdminService: the methods for operators."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import numpy as np
from grpc import aio

from aggregator.config import Limits
from aggregator.operator_views import export_view, held_view, participant_view, run_view
from aggregator.proposal import Proposal, complete_terms
from aggregator.rpc.answers import Draining, Missing, OutOfTurn, Overloaded, runner_of
from aggregator.rpc.guard import OpenCalls
from aggregator.run import events
from aggregator.run.attempts import why_not_finished
from aggregator.run.state import Status
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.store import audit, participants
from aggregator.trust import CALLER, Trust
from dcfpca.errors import BadInput
from dcfpca.rpca.method import Layout
from dcfpca.spec import parse_spec
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.v1 import admin_pb2_grpc
from dcfpca.v1.types_pb2 import DTYPE_FLOAT64, Chunk, TensorPart
from dcfpca.wire.tensors import encoded_chunks, header_of

Context: TypeAlias = "aio.ServicerContext[Any, Any]"


_FINISH = "`dcfpca run finish` ends it with the consensus it has; `dcfpca run abort` without a result"

AUDIT_PAGE = 200
"""Entries of the audit log read at a time, so that it is never in memory as a whole."""
LONGEST_WAIT_MS = 10_000
"""The longest that a call waits for an export to change."""

VIEW_SECONDS = 0.0005
"""The least time between two views of a watched run, for each participant in it."""
LEAST_VIEW_SECONDS = 0.1
"""The least time for any run: nobody reads faster, and each view delays the round."""


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """The methods of operators; the guard has checked that the caller is one."""

    def __init__(self, registry: RunRegistry, trust: Trust, limits: Limits, calls: OpenCalls) -> None:
        self._registry, self._trust, self._limits, self._calls = registry, trust, limits, calls

    async def ProposeRun(self, request: pb.ProposeRunRequest, context: Context) -> pb.RunView:  # noqa: N802
        """Start a run."""
        if not 8 <= len(request.request_id) <= 100:
            raise BadInput("the request id must have 8 to 100 characters")
        await self._check_open_runs(request.request_id)
        limit = self._limits.max_update_mib
        terms = await complete_terms(parse_spec(request.spec), self._registry.directory, limit)
        runner = await self._registry.propose(Proposal(terms, CALLER.get().title, request.request_id))
        return await run_view(self._registry, runner)

    async def _check_open_runs(self, request_id: str) -> None:
        """Raise Overloaded when too many runs are open, as each holds its consensus in memory; a repeat opens none."""
        open_now = self._registry.open_runs()
        if open_now >= self._limits.max_open_runs and await self._registry.run_of_request(request_id) is None:
            hint = "abort those that nobody needs, or raise [limits] max_open_runs"
            raise Overloaded(f"{open_now} runs are open, which is the most allowed", hint)

    async def ListRuns(self, request: pb.ListRunsRequest, context: Context) -> pb.ListRunsResponse:  # noqa: N802
        """All runs, newest first; those that cannot be served are among them, with the reason."""
        listed = [await self._registry.find(run_id) for run_id in self._registry.newest(request.limit or None)]
        views = [await run_view(self._registry, runner, rounds=False) for runner in listed if runner]
        views += [await held_view(self._registry, held, rounds=False) for held in self._registry.held.values()]
        views.sort(key=lambda view: view.created_ms, reverse=True)
        return pb.ListRunsResponse(runs=views[: request.limit or None])

    async def GetRun(self, request: pb.GetRunRequest, context: Context) -> pb.RunView:  # noqa: N802
        """One run."""
        if held := self._registry.held.get(request.run_id):
            return await held_view(self._registry, held)
        return await run_view(self._registry, await runner_of(self._registry, request.run_id))

    async def WatchRun(self, request: pb.WatchRunRequest, context: Context) -> AsyncIterator[pb.RunView]:  # noqa: N802
        """The run whenever it changes, until it is over."""
        runner, after = await runner_of(self._registry, request.run_id), request.after_round
        while True:
            seen, over = runner.changed.version, runner.run.status.over
            view = await run_view(self._registry, runner, after)
            after = max([after, *(done.round for done in view.rounds)])
            yield view
            if over:
                return
            await runner.changed.wait(seen)
            # Every message of a large cohort changes its large view, so some views are left out.
            await asyncio.sleep(max(LEAST_VIEW_SECONDS, len(runner.run.enrolled) * VIEW_SECONDS))
            if self._registry.draining:
                raise Draining("the aggregator is stopping", "watch again in a moment; the run goes on")

    async def AbortRun(self, request: pb.AbortRunRequest, context: Context) -> pb.RunView:  # noqa: N802
        """End a run."""
        runner, who = await runner_of(self._registry, request.run_id), CALLER.get()
        if not runner.run.status.over:
            reason = f"aborted by {who.name}" + (f": {request.reason[:500]}" if request.reason else "")
            event = events.Aborted(at=self._registry.store.now(), reason=reason)
            await self._act(runner, event, "run_aborted", reason=request.reason[:500])
        return await run_view(self._registry, runner)

    async def ResumeRun(self, request: pb.ResumeRunRequest, context: Context) -> pb.RunView:  # noqa: N802
        """Let a paused run go on."""
        runner = await runner_of(self._registry, request.run_id)
        if runner.run.status is not Status.PAUSED:
            raise OutOfTurn(f"run {request.run_id} is {runner.run.status.value}, not paused")
        if why_not := runner.rules.why_not_resumed(runner.run):
            raise OutOfTurn(f"run {request.run_id} cannot go on: {why_not}", _FINISH)
        await self._act(runner, events.Resumed(at=self._registry.store.now()), "run_resumed")
        return await run_view(self._registry, runner)

    async def FinishRun(self, request: pb.FinishRunRequest, context: Context) -> pb.RunView:  # noqa: N802
        """End a run with the consensus it has."""
        runner, who = await runner_of(self._registry, request.run_id), CALLER.get()
        if why_not := why_not_finished(runner.spec, runner.run):
            raise OutOfTurn(why_not, "" if runner.run.status.over else "wait for that round, or abort the run")
        here = runner.run.attempt.ref.round if runner.run.attempt else 0
        because = f": {request.reason[:500]}" if request.reason else ""
        reason = f"finished by the operator {who.name} before round {here}{because}"
        event = events.FinishedByOperator(at=self._registry.store.now(), reason=reason)
        await self._act(runner, event, "run_finished_by_operator", reason=request.reason[:500])
        return await run_view(self._registry, runner)

    async def DeleteRun(self, request: pb.DeleteRunRequest, context: Context) -> pb.DeleteRunResponse:  # noqa: N802
        """Delete a run that is over or cannot be served."""
        run_id = request.run_id
        if run_id not in self._registry.held and not (await runner_of(self._registry, run_id)).run.status.over:
            hint = f"end it first: `dcfpca run abort {run_id}`"
            raise OutOfTurn(f"run {run_id} is not over", hint)
        who = CALLER.get().title
        await self._registry.complete(self._registry.delete(run_id, who, request.reason[:500]))
        return pb.DeleteRunResponse()

    async def ListParticipants(  # noqa: N802
        self, request: pb.ListParticipantsRequest, context: Context
    ) -> pb.ListParticipantsResponse:
        """Everyone who ever connected."""
        views = [
            participant_view(self._registry, who, self._trust.is_revoked(who.name, who.fingerprint))
            for _, who in sorted(self._registry.directory.records.items())
        ]
        return pb.ListParticipantsResponse(participants=views)

    async def FetchModel(  # noqa: N802
        self, request: pb.FetchModelRequest, context: Context
    ) -> AsyncIterator[TensorPart | bytes]:
        """U and the singular values of a finished run."""
        runner = await self._finished(request.run_id)
        model = runner.terms.method.model(await runner.final.whole())
        U, values = model["U"], model["singular_values"]
        payload = np.concatenate([np.ascontiguousarray(U).ravel(), values]).astype("<f8", copy=False).tobytes()
        layout = Layout(U.shape[0], U.shape[1], len(values))
        await self._record("model_fetched", request.run_id)
        yield TensorPart(header=header_of(payload, layout, DTYPE_FLOAT64))
        for part in encoded_chunks(payload):
            yield part

    async def RequestExport(self, request: pb.RequestExportRequest, context: Context) -> pb.ExportView:  # noqa: N802
        """Ask the cohort for their reconstructions."""
        runner = await self._finished(request.run_id)
        if runner.run.export is None:
            if not runner.spec.export:
                hint = "propose the run with `export = true` (--export), so that every site can review it"
                raise OutOfTurn("the spec of this run did not announce that reconstructions would be asked for", hint)
            event = events.ExportRequested(at=self._registry.store.now(), export_id=secrets.token_hex(8))
            await self._act(runner, event, "export_requested")
        return self._export(runner)

    async def GetExport(self, request: pb.GetExportRequest, context: Context) -> pb.ExportView:  # noqa: N802
        """The progress of an export; with `wait_ms`, after the next change while somebody is awaited."""
        runner = await self._finished(request.run_id)
        seen, view = runner.changed.version, self._export(runner)
        if request.wait_ms and view.awaited and not self._registry.draining:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(request.wait_ms, LONGEST_WAIT_MS) / 1000):
                    await runner.changed.wait(seen)
            view = self._export(runner)
        return view

    async def FetchReconstruction(  # noqa: N802
        self, request: pb.FetchReconstructionRequest, context: Context
    ) -> AsyncIterator[Chunk]:
        """One exported file."""
        runner = await self._finished(request.run_id)
        if request.participant not in runner.run.cohort:
            raise Missing(f"{request.participant[:80]!r} is not in the cohort of run {request.run_id}")
        who, artifact = request.participant, request.artifact
        await self._record("reconstruction_fetched", request.run_id, participant=who, artifact=artifact[:40])
        chunks = self._registry.store.store.exports.read(request.run_id, who, artifact, request.offset)
        if chunks is None:
            raise Missing(f"{who} has not exported {artifact} of run {request.run_id}")
        for place, data in chunks:
            yield Chunk(offset=place, data=data)

    async def FetchAuditLog(  # noqa: N802
        self, request: pb.FetchAuditLogRequest, context: Context
    ) -> AsyncIterator[pb.AuditEntry]:
        """The whole log when no run is named, so that the chain can be verified; else the run's entries.

        A participant gets its own entries and what concerns it, and of the others their hashes.
        """
        after, reader = 0, CALLER.get().identity
        while page := await self._registry.store.do(lambda store: audit.entries(store.connection, after, AUDIT_PAGE)):  # noqa: B023
            for entry in page:
                shown = audit.shown_to(reader, entry, lambda run_id: self._registry.invites(run_id, reader.name))
                if request.run_id in ("", shown.run_id):
                    yield shown
            after = page[-1].sequence

    async def RevokeParticipant(  # noqa: N802
        self, request: pb.RevokeParticipantRequest, context: Context
    ) -> pb.RevokeParticipantResponse:
        """Revoke all certificates of a participant, or the one with a fingerprint, and cut their calls."""
        known = self._registry.directory.records.get(request.name)
        shown = request.fingerprint.lower() or (known.fingerprint if known else "")
        if len(shown) != 64 or set(shown) - set("0123456789abcdef"):
            hint = "name one of `dcfpca participants list`, or give a SHA-256 fingerprint"
            raise Missing(f"no certificate is known for {request.name[:80]!r}", hint)
        marks = self._trust.marks_to_revoke("" if request.fingerprint else request.name, shown)
        cut = await self._registry.complete(self._revoke(marks, shown, request.name[:200], request.reason[:500]))
        return pb.RevokeParticipantResponse(fingerprints=[shown], streams_cut=cut)

    async def _revoke(self, marks: frozenset[str], shown: str, name: str, reason: str) -> int:
        at = self._registry.store.now()
        await self._registry.store.do(lambda store: participants.revoke(store.connection, marks, name, reason, at))
        self._trust.revoke(*marks)
        # Recorded first: an operator that turns itself away is cut, too.
        await self._record("participant_revoked", "", name=name, fingerprint=shown, marks=sorted(marks), reason=reason)
        self._registry.members_revoked(self._trust.is_revoked)
        return self._calls.cut(self._trust.is_trusted)

    async def RestoreParticipant(  # noqa: N802
        self, request: pb.RestoreParticipantRequest, context: Context
    ) -> pb.RestoreParticipantResponse:
        """Undo a revocation that was made here."""
        name = request.name[:200]
        marks = await self._registry.store.do(lambda store: participants.revoked_under(store.connection, name))
        if not name or not marks:
            hint = "`dcfpca participants list` shows who is; who was revoked by the CA needs a new certificate"
            raise Missing(f"{name[:80]!r} has not been turned away by this aggregator", hint)
        await self._registry.complete(self._restore(marks, name, request.reason[:500]))
        return pb.RestoreParticipantResponse(marks=len(marks))

    async def _restore(self, marks: frozenset[str], name: str, reason: str) -> None:
        """Record the restoration in the audit log before it takes effect."""
        await self._record("participant_restored", "", name=name, marks=sorted(marks), reason=reason)
        await self._registry.store.do(lambda store: participants.restore(store.connection, marks))
        self._trust.restore(marks)

    def _export(self, runner: Runner) -> pb.ExportView:
        if runner.run.export is None:
            raise OutOfTurn("no reconstruction of this run has been asked for", "use `dcfpca run export`")
        return export_view(runner.run, runner.run.export)

    async def _finished(self, run_id: str) -> Runner:
        runner = await runner_of(self._registry, run_id)
        if runner.run.status is not Status.FINISHED:
            raise OutOfTurn(f"run {run_id} is {runner.run.status.value}, not finished", runner.run.reason)
        return runner

    async def _act(self, runner: Runner, event: events.Event, action: str, **detail: object) -> None:
        """Post an operator's event and record it in the audit log, both even if the operator hangs up."""

        async def both() -> None:
            await runner.post(event)
            await self._record(action, runner.run.run_id, **detail)

        await self._registry.complete(both())

    async def _record(self, action: str, run_id: str, **detail: object) -> None:
        await self._registry.store.record(action, actor=CALLER.get().title, run_id=run_id, **detail)

"""One run at the site, carried out: the session decides, this saves, computes and sends."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from dcfpca.consent import consent_bytes
from dcfpca.errors import BadMessage, DcfpcaError
from dcfpca.fate import Fate
from dcfpca.logs import log
from dcfpca.rpca.method import Layout, Site, TensorMessage
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire import check_digest, check_header, message_from
from participant import wire_codec
from participant.contract import Contract
from participant.egress import Egress
from participant.engine import Engine
from participant.link import Link
from participant.local_site import LocalSite
from participant.progress import Meter, MeteredColumns, passes_of
from participant.results import Finding, has_result, write_results
from participant.session import Consent, Session, actions, events
from participant.session.events import ConsensusHeader, Kind, Ref
from participant.store import LocalStep, RunRow, Store
from participant.telemetry import Telemetry

# Below this the event loop copies bytes faster than a thread starts.
INLINE_WORK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Means:
    """What every run at the site works with."""

    site: LocalSite
    store: Store
    link: Link
    egress: Egress
    engine: Engine
    results: Path
    telemetry: Telemetry = field(default_factory=Telemetry)


class Driver:
    """Runs one session. Events are taken one at a time; what takes long runs beside and reports back as an event."""

    def __init__(self, run_id: str, means: Means, row: RunRow | None = None) -> None:
        self.run_id = run_id
        self._means = means
        finished = row is not None and row.status in ("finished", "ended")
        consent = row.consent if row else None
        self.session = Session(run_id, means.site.facts, means.site.identity, consent, finished)
        self._agreed: Contract | None = None
        self._site: Site | None = None
        self._site_lock = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._meter = Meter(self._progressed)
        self._loop: asyncio.AbstractEventLoop | None = None

    def restore(self, row: RunRow) -> None:
        """Take up a run from before a restart."""
        step = self._means.store.step(self.run_id)
        past: list[events.Event] = []
        if row.status == "waiting":
            past.append(events.Proposed(row.spec, row.digest))
        if step is not None:
            past.append(events.Computed(step.round, step.consensus, step.vector))
        seed, before = self._means.store.seed(self.run_id)
        past += [_with_seed(_decoded(body), seed, before) for body in self._means.store.inbox(self.run_id)]
        self.session.replay(past)
        self._perform(self.session.resume())
        log("run_resumed", run=self.run_id, status=row.status, ref=str(self.session.ref or "its beginning"))

    def take(self, event: events.Event, source: pb.Assignment | None = None) -> None:
        """React to one event: save what must be saved, then do what is to be done."""
        if isinstance(event, events.Opened):
            if self._is_spent(event.ref):
                log("attempt_sat_out", run=self.run_id, round=event.ref.round, attempt=event.ref.attempt)
                return
            before = self.session.opened_for(event.ref.round)
            event = replace(event, seed=os.urandom(32), opened_before=before)
        consent, ref = self.session.consent, self.session.ref
        reaction = self.session.handle(event)
        if self.session.ref != ref:
            self._drop_messages()
        if reaction.save:
            self._save(event, source, consent)
        self._perform(reaction.actions)

    @property
    def is_over(self) -> bool:
        """Nothing is left to do, so that the driver may be forgotten and made anew from what is saved."""
        return self.session.finished and not self._tasks

    async def stop(self) -> None:
        """Cancel what is under way; all of it can be taken up again."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_spent(self, ref: Ref) -> bool:
        """Whether this attempt had a seed in an earlier life that could not be taken up again."""
        return ref != self.session.ref and self._means.store.had_seed(self.run_id, ref)

    def _save(self, event: events.Event, source: pb.Assignment | None, before: Consent | None) -> None:
        store, session = self._means.store, self.session
        if session.consent is not None and session.consent is not before:
            store.save_consent(self.run_id, session.consent, _now_ms())
            return
        match event:
            case events.Proposed():
                private = self._means.site.facts.policy.private
                store.save_waiting(self.run_id, event.spec, event.digest, private, _now_ms())
            case events.Opened():
                # A plain attempt has no secrets and only one answer, so there is nothing that must not change.
                if session.consent is not None and session.consent.spec.aggregation == "secure":
                    body = _without_consensus(source)
                    store.open_attempt(self.run_id, event.ref, event.seed, body, event.opened_before)
            case events.Ended() | events.TurnedDown():
                store.end(self.run_id, "ended", event.reason)
            case events.ResultsWritten():
                store.end(self.run_id, "finished", event.outcome)
            case _:
                store.save_inbox(self.run_id, source.SerializeToString() if source else b"")

    def _perform(self, wanted: tuple[actions.Action, ...]) -> None:
        for action in wanted:
            match action:
                case actions.Respond():
                    self._start("respond", partial(self._respond, action))
                case actions.AwaitApproval():
                    hint = f"dcfpca-participant approve {self.run_id} --config …"
                    log("approval_awaited", level="warning", run=self.run_id, hint=hint)
                case actions.Compute():
                    self._start("compute", partial(self._compute, action))
                case actions.Finish():
                    self._start("finish", partial(self._finish, action))
                case actions.Forget():
                    log("run_ended", run=self.run_id, status=action.status, reason=action.reason)
                    self._site = None
                    self._drop_messages()
                case actions.Export() | actions.RefuseExport():
                    self._start(f"export {action.export_id}", partial(self._export, action))
                case actions.Complain():
                    log(
                        "assignment_refused", level="warning", run=self.run_id, kind=action.kind, reason=action.sentence
                    )
                case _:
                    self._start(_name(action), partial(self._send, action))

    def _start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run beside; the same work is not started twice."""
        if name in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(self._guarded(name, work), name=f"{self.run_id} {name}")
        self._tasks[name] = task
        task.add_done_callback(partial(self._ended, name))

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        """Forget a task, unless its name has passed on to its successor already."""
        if self._tasks.get(name) is task:
            del self._tasks[name]

    async def _guarded(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """No failure of one run may take the daemon down; it is told, and the run goes on without the site."""
        try:
            await work()
        except DcfpcaError as error:
            log("action_failed", level="error", run=self.run_id, what=name, reason=str(error), hint=error.hint or None)
        except Exception as error:
            log("action_failed", level="error", run=self.run_id, what=name, reason=f"{type(error).__name__}: {error}")

    def _drop_messages(self) -> None:
        """Messages of an attempt that is over would be late."""
        for name, task in list(self._tasks.items()):
            if name.startswith("message "):
                task.cancel()
                self._tasks.pop(name)

    def _contract(self) -> Contract:
        consent = self.session.consent
        assert consent is not None
        if self._agreed is None or self._agreed.spec is not consent.spec:
            self._agreed = Contract(self.run_id, self._means.site.name, consent.spec)
        return self._agreed

    async def _respond(self, action: actions.Respond) -> None:
        name = self._means.site.name
        statement = consent_bytes(
            self.run_id, action.digest, name, accept=action.accept, private=action.private, reasons=action.reasons
        )
        request = pb.RespondRequest(
            run_id=self.run_id,
            spec_sha256=action.digest,
            accept=action.accept,
            reasons=action.reasons,
            private=action.private,
            signature=self._means.site.sign(statement),
        )
        word = "run_enrolled" if action.accept else "run_refused"
        log(word, run=self.run_id, reasons=list(action.reasons) or None)
        self._means.telemetry.answered(accept=action.accept)
        receipt = await self._means.egress.respond(request)
        fate = wire_codec.fate_of(receipt)
        log("answer_sent", run=self.run_id, fate=fate.value, reason=receipt.reason or None)
        if fate in (Fate.LATE, Fate.REJECTED) and self.session.ref is None:
            self.take(events.TurnedDown(receipt.reason))

    async def _send(self, action: actions.RoundMessage) -> None:
        if isinstance(action, actions.Submit):
            payload = await self._update_bytes(action.ref)
            opened = latest if (latest := self.session.latest) and latest.ref == action.ref else None
            receipt = await self._means.egress.submit(self._contract(), action.ref, payload, opened)
        else:
            receipt = await self._means.egress.send(self._contract(), action)
        fate = wire_codec.fate_of(receipt)
        for kind in actions.kinds_of(action):
            self._acknowledged(action.ref, kind, fate, receipt.reason)

    def _acknowledged(self, ref: Ref, kind: Kind, fate: Fate, reason: str) -> None:
        # Late is ordinary: a threshold of signatures or shares is enough, and somebody is always last.
        told: Literal["info", "debug"] = "info" if kind is Kind.UPDATE else "debug"
        log(
            f"{kind.value}_sent",
            level="warning" if fate is Fate.REJECTED else told,
            run=self.run_id,
            round=ref.round,
            attempt=ref.attempt,
            fate=fate.value,
            reason=reason or None,
        )
        self._means.telemetry.message(kind.value, fate.value)
        self.take(events.Acknowledged(ref, kind, fate, reason))

    async def _update_bytes(self, ref: Ref) -> bytes:
        if self._contract().layout(ref.round).size * 8 <= INLINE_WORK_BYTES:
            return self.session.update_bytes(ref)
        return await self._means.engine.run(lambda: self.session.update_bytes(ref))

    async def _compute(self, action: actions.Compute) -> None:
        started, self._loop = time.monotonic(), asyncio.get_running_loop()
        try:
            async with self._site_lock:
                broadcast = await self._consensus(action.consensus, action.round)
                site = self._opened_site()
                step, checksum = await self._means.engine.run(lambda: self._local_step(site, action, broadcast))
                if self.session.finished:
                    self._means.store.forget_files(self.run_id)
                    return
                self._means.store.record_step(self.run_id, step, checksum)
        except Exception as error:
            # A site that half took a step must not go on from it: the next round starts from what was saved.
            self._site = None
            self._means.telemetry.step_failed()
            self._tasks.pop("compute", None)
            self.take(events.ComputeFailed(action.round, str(error)))
            return
        seconds = time.monotonic() - started
        columns = self._means.site.facts.columns
        self._means.telemetry.step(self._contract().spec, action.round, columns, seconds)
        log("step_computed", level="debug", run=self.run_id, round=action.round, seconds=seconds)
        # The session may ask for the next step at once, so this one has to be out of the way.
        self._tasks.pop("compute", None)
        self.take(events.Computed(step.round, step.consensus, step.vector))

    def _local_step(self, site: Site, action: actions.Compute, broadcast: TensorMessage) -> tuple[LocalStep, int]:
        self._meter.begin(passes_of(self._contract().spec) * self._means.site.facts.columns)
        vector = site.answer(action.round, broadcast).flat()
        if not np.isfinite(vector).all():
            raise BadMessage("the local step gave numbers that are not finite")
        step = LocalStep(action.round, action.consensus.sha256, vector, site.snapshot())
        return step, self._means.store.save_step(self.run_id, step)

    def _progressed(self, percent: int) -> None:
        """Called from the thread of the local step."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, percent)

    def _report(self, percent: int) -> None:
        ref = self.session.ref
        if ref is not None and not self.session.finished:
            log("step_progress", run=self.run_id, round=ref.round, percent=percent)
            agreed = self._contract()
            self._start(f"message {ref} progress", lambda: self._means.egress.report(agreed, ref, percent))

    def _opened_site(self) -> Site:
        """The site's side of the method, from its last saved step."""
        if self._site is None:
            agreed = self._contract()
            columns = MeteredColumns(self._means.site.columns(agreed.spec), self._meter)
            site = self._means.engine.site(agreed.method, columns)
            if (step := self._means.store.step(self.run_id)) is not None:
                self._means.engine.resume(site, step.snapshot)
            self._site = site
        return self._site

    async def _consensus(self, told: ConsensusHeader, round: int, *, final: bool = False) -> TensorMessage:
        """The broadcast of a round: inline where it is small, else fetched; checked against the spec before use."""
        layout = self._contract().method.broadcast_layout(max(round, 1) if final else round)
        header = _header(told, layout)
        if told.inline:
            check_digest(header, told.inline)
            return message_from(layout, told.inline)
        if layout.size == 0:
            return message_from(layout, b"")
        request = pb.FetchConsensusRequest(run_id=self.run_id, round=round, final=final)
        return message_from(layout, await self._means.link.fetch(request, header))

    async def _finish(self, action: actions.Finish) -> None:
        consent = self.session.consent
        assert consent is not None
        finding = Finding(
            run_id=self.run_id,
            participant=self._means.site.name,
            digest=consent.digest,
            rounds=action.round,
            outcome=action.outcome,
            written=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        columns, results = self._means.site.facts.columns, self._means.results
        async with self._site_lock:
            broadcast = await self._consensus(action.consensus, action.round, final=True)
            site = self._opened_site()
            await self._means.engine.run(
                lambda: write_results(results, finding, consent.spec, site, broadcast, columns)
            )
            self._site = None
        self._means.telemetry.result_written()
        log("results_written", run=self.run_id, rounds=action.round, outcome=action.outcome)
        self.take(events.ResultsWritten(action.outcome))

    async def _export(self, action: actions.Export | actions.RefuseExport) -> None:
        egress, consent, results = self._means.egress, self.session.consent, self._means.results
        if "finish" in self._tasks:
            await asyncio.wait([self._tasks["finish"]])
        reason = action.reason if isinstance(action, actions.RefuseExport) else ""
        if not reason and not has_result(results, self.run_id):
            reason = "this participant has no result of the run"
        if reason or consent is None:
            receipt = await egress.refuse_export(self.run_id, action.export_id, reason)
            log("export_refused", run=self.run_id, reason=reason, fate=wire_codec.fate_of(receipt).value)
            return
        receipts = await egress.export(consent.spec, self.run_id, action.export_id, results / self.run_id)
        fates = [wire_codec.fate_of(receipt).value for receipt in receipts]
        log("reconstruction_exported", run=self.run_id, fates=fates)


def _header(told: ConsensusHeader, layout: Layout) -> types.TensorHeader:
    header = types.TensorHeader(
        dtype=types.DTYPE_FLOAT64,
        rows=told.rows,
        columns=told.columns,
        scalars=told.scalars,
        sha256=told.sha256,
    )
    check_header(header, layout, types.DTYPE_FLOAT64)
    return header


def _name(action: actions.RoundMessage) -> str:
    return f"message {action.ref} {actions.kinds_of(action)[0].value}"


def _without_consensus(source: pb.Assignment | None) -> bytes:
    """What opened the attempt, less the tensor, which is fetched again where it is needed again."""
    if source is None:
        return b""
    source.round_opened.inline_consensus = b""
    return source.SerializeToString()


def _decoded(body: bytes) -> events.Assigned:
    return wire_codec.decode(pb.Assignment.FromString(body))


def _with_seed(event: events.Assigned, seed: bytes, before: tuple[str, ...]) -> events.Event:
    if isinstance(event, events.Opened):
        if not seed:
            raise BadMessage("the seed of the open attempt is gone")
        return replace(event, seed=seed, opened_before=before)
    return event


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

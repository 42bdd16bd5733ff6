"""Drives one run at the site: gives events to the session, saves what must be saved, then starts the actions."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial

from dcfpca.attempt_ref import AttemptRef
from dcfpca.fate import Fate
from dcfpca.logs import log
from dcfpca.v1 import rounds_pb2 as pb
from participant import wire_codec
from participant.contract import Contract
from participant.driver import outgoing
from participant.driver.local_work import LocalWork
from participant.driver.named_tasks import NamedTasks
from participant.driver.saved_events import save_event, saved_events
from participant.driver.site_services import SiteServices
from participant.results.retry import until_written
from participant.session import Session, actions, events
from participant.state.store import RunRow

COMPUTE, FINISH, MESSAGE = "compute", "finish", "message "


class RunDriver:
    """Takes one event at a time; work that takes long runs in the background and reports back as an event."""

    def __init__(self, run_id: str, services: SiteServices, row: RunRow | None = None) -> None:
        """`row` is what the store holds of the run, if anything."""
        self.run_id = run_id
        self._services = services
        finished = row is not None and row.status in ("finished", "ended")
        consent = row.consent if row else None
        self.session = Session(run_id, services.site.facts, services.site.identity, consent, finished)
        self._agreed: Contract | None = None
        self._tasks = NamedTasks(run_id, services.store.note)
        self._local = LocalWork(run_id, services, self._report)

    def restore(self, row: RunRow) -> None:
        """Continue a run that was open before a restart."""
        step = self._services.store.step(self.run_id)
        self._local.continue_from(step)
        self.session.replay(saved_events(self._services.store, row, step))
        self._perform(self.session.resume())
        log("run_resumed", run=self.run_id, status=row.status, ref=str(self.session.ref or "its beginning"))

    def take(self, event: events.Event, source: pb.Assignment | None = None) -> None:
        """Handle one event: save what the session asks for, then start its actions.

        `source` is the assignment that the event was decoded from, if it came from the aggregator.
        """
        if isinstance(event, events.Opened):
            if self._is_spent(event.ref):
                log("attempt_sat_out", run=self.run_id, round=event.ref.round, attempt=event.ref.attempt)
                return
            event = replace(event, seed=os.urandom(32), opened_before=self.session.opened_for(event.ref.round))
        consent, ref = self.session.consent, self.session.ref
        reaction = self.session.handle(event)
        if self.session.ref != ref:
            self._cancel_messages()
        if reaction.save:
            save_event(self._services.store, self.session, event, source, consent)
        self._perform(reaction.actions)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do; the driver may then be dropped, and made again from what is saved."""
        return self.session.finished and not self._tasks

    async def stop(self) -> None:
        """Cancel all work under way; a driver made from what is saved continues it."""
        await self._tasks.stop()

    def _is_spent(self, ref: AttemptRef) -> bool:
        """Whether this attempt had a seed before the restart, and that seed may not be used again."""
        return ref != self.session.ref and self._services.store.had_seed(ref)

    def _perform(self, wanted: tuple[actions.Action, ...]) -> None:
        for action in wanted:
            match action:
                case actions.Respond():
                    self._tasks.start("respond", partial(self._respond, action))
                case actions.AwaitApproval():
                    hint = f"dcfpca-participant approve {self.run_id} --config …"
                    log("approval_awaited", level="warning", run=self.run_id, hint=hint)
                case actions.Compute():
                    self._tasks.start(COMPUTE, partial(self._compute, action))
                case actions.Finish():
                    self._tasks.start(FINISH, partial(self._finish, action))
                case actions.Forget():
                    log("run_ended", run=self.run_id, status=action.status, reason=action.reason)
                    self._local.forget()
                    self._cancel_messages()
                case actions.Export() | actions.RefuseExport():
                    self._tasks.start(f"export {action.export_id}", partial(self._export, action))
                case actions.LogRefusal():
                    log("assignment_refused", level="warning", run=self.run_id, kind=action.kind, reason=action.reason)
                case _:
                    name = f"{MESSAGE}{action.ref} {actions.kinds_of(action)[0].value}"
                    self._tasks.start(name, partial(self._send, action))

    def _cancel_messages(self) -> None:
        """Messages of an attempt that is over would be late."""
        self._tasks.cancel(MESSAGE)

    def _contract(self) -> Contract:
        consent = self.session.consent
        assert consent is not None
        if self._agreed is None or self._agreed.spec is not consent.spec:
            self._agreed = Contract(self.run_id, self._services.site.name, consent.spec)
        return self._agreed

    async def _respond(self, action: actions.Respond) -> None:
        fate, reason = await outgoing.respond(self._services, self.run_id, action)
        if fate in (Fate.LATE, Fate.REJECTED) and self.session.ref is None:
            self.take(events.TurnedDown(reason))

    async def _send(self, action: actions.RoundMessage) -> None:
        receipt = await outgoing.send(self._services, self._contract(), self.session, action)
        fate = wire_codec.fate_of(receipt)
        for kind in actions.kinds_of(action):
            outgoing.log_receipt(self._services, action.ref, kind, fate, receipt.reason)
            self.take(events.Acknowledged(action.ref, kind, fate, receipt.reason))

    async def _compute(self, action: actions.Compute) -> None:
        started, agreed = time.monotonic(), self._contract()
        try:
            step = await self._local.step(agreed, action, lambda: not self.session.finished)
        except Exception as error:
            self._services.store.note(error)
            self._services.telemetry.step_failed()
            self._tasks.release(COMPUTE)
            self.take(events.ComputeFailed(action.round, str(error)))
            return
        if self.session.finished:
            return
        seconds = time.monotonic() - started
        self._services.telemetry.step(agreed.spec, action.round, self._services.site.facts.columns, seconds)
        log("step_computed", level="debug", run=self.run_id, round=action.round, seconds=seconds)
        # The session may ask for the next step at once, and it has the same name.
        self._tasks.release(COMPUTE)
        self.take(events.Computed(step.round, step.consensus, step.vector))

    def _report(self, percent: int) -> None:
        ref = self.session.ref
        if ref is not None and not self.session.finished:
            log("step_progress", run=self.run_id, round=ref.round, percent=percent)
            agreed = self._contract()
            work = partial(self._services.egress.report, agreed, ref, percent)
            self._tasks.start(f"{MESSAGE}{ref} progress", work)

    async def _finish(self, action: actions.Finish) -> None:
        consent = self.session.consent
        assert consent is not None
        await until_written(self.run_id, lambda: self._local.finish(self._contract(), consent, action))
        self._services.telemetry.result_written()
        log("results_written", run=self.run_id, rounds=action.round, outcome=action.outcome)
        self.take(events.ResultsWritten(action.outcome))

    async def _export(self, action: actions.Export | actions.RefuseExport) -> None:
        await self._tasks.wait_for(FINISH)
        await outgoing.export(self._services, self.session, action)

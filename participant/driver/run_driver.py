"""Drives one run at the site: gives events to the session, saves what must be saved, then starts the actions."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property, partial

from dcfpca.logs import log
from dcfpca.secagg.errors import SecureSumRefusal, SiteFailure
from dcfpca.secagg.site import ENTROPY_BYTES
from dcfpca.wire.receipt import Fate
from dcfpca.wire.round_messages import consent_bytes
from participant import wire_codec
from participant.contract import Contract
from participant.driver.local_work import LocalWork, SiteDiffers
from participant.driver.named_tasks import NamedTasks
from participant.driver.round_answer import answer_round, final_is_verified, refusal_of
from participant.driver.saved_events import save_event, saved_events
from participant.driver.site_services import SiteServices
from participant.engine.progress import WorkCancelled
from participant.privacy_review import Spending
from participant.results.reading import has_result
from participant.results.writing import until_written
from participant.session import Consent, History, Session, actions, events
from participant.state.store import RunRow

COMPUTE, FINISH, MESSAGE, RETRY = "compute", "finish", "message ", "retry"
CONSENT, REFUSAL, NOTICE = "consent", "refusal", "notice"
RETRY_SECONDS = 30.0
"""After a failure at the site itself, the round is tried again: the aggregator repeats nothing while the connection
holds."""


class RunDriver:
    """Takes one event at a time; work that takes long runs in the background and reports back as an event."""

    def __init__(
        self,
        run_id: str,
        services: SiteServices,
        row: RunRow | None = None,
        over: Callable[[RunDriver], None] = lambda _: None,
    ) -> None:
        """`row` is what the store holds of the run, if anything. `over` is called when the last work of a run that is
        over has ended."""
        self.run_id = run_id
        self._services = services
        finished = row is not None and row.status in ("finished", "ended")
        consent, approved = (row.consent, row.approved) if row else (None, False)
        site, store = services.site, services.store
        past = partial(store.past_runs, run_id)
        history = History(past, self._spent, store.result_digest, lambda: store.data_refusals(_now_ms()))
        self.session = Session(run_id, site.facts, site.identity, consent, finished, history, approved)
        if row is not None:
            other_data = store.has_other_data(run_id, site.pinned_digest)
            self.session.handle(events.Restored(row.cohort, store.key_slots(run_id), other_data))
        self._unsaved = False  # the session is ahead of the disk, so nothing may leave
        self._over = over
        self._tasks = NamedTasks(run_id, services.store.note, self._idle)
        self._local = LocalWork(run_id, services, self._report)

    def restore(self, row: RunRow) -> None:
        """Continue a run that was open before a restart."""
        step = self._services.store.step(self.run_id)
        self._local.continue_from(step)
        self.session.replay(saved_events(self._services.store, row, step))
        self._perform(self.session.resume())
        opened = self.session.opened
        log("run_resumed", run=self.run_id, status=row.status, ref=str(opened.ref if opened else "its beginning"))

    def take(self, event: events.Event, source: Callable[[], bytes] = bytes) -> None:
        """Handle one event: save what the session asks for, then start its actions.

        `source` gives the encoded assignment that the event was decoded from, if it came from the aggregator.
        """
        if self._unsaved:
            return
        if isinstance(event, events.KeyWanted):
            event = replace(event, entropy=os.urandom(ENTROPY_BYTES))
        session = self.session
        consent, opened = session.consent, session.opened
        reaction = session.handle(event)
        if session.opened is not opened:
            self._tasks.cancel(MESSAGE)  # messages of an attempt that is over would be late
        if not self._takes_part():
            self._local.cancel()
        if reaction.save:
            try:
                save_event(self._services, session, event, source, consent)
            except Exception as error:
                # The daemon stops, and begins anew from the disk.
                self._unsaved = True
                self._services.store.fail(error)
                raise
        self._perform(reaction.actions)
        if session.finished and not self._tasks:
            self._idle()

    def _idle(self) -> None:
        """No work is left: a driver whose run is over may be dropped, and made again from what is saved."""
        if self.session.finished:
            self._over(self)

    async def until_finished(self) -> None:
        """Return once results are written, if that is under way."""
        await self._tasks.wait_for(FINISH)

    async def stop(self) -> None:
        """Cancel all work under way; a driver made from what is saved continues it."""
        self._local.cancel()
        await self._tasks.stop()

    def _spent(self) -> Spending:
        """What runs have spent of the site's privacy budget until now."""
        return self._services.store.privacy.spending(self._services.site.column_set, _now_ms())

    def _takes_part(self) -> bool:
        """Whether the run goes on at this site: it has not ended, and the site has not withdrawn."""
        consent = self.session.consent
        return not self.session.finished and consent is not None and consent.accept

    def _perform(self, wanted: tuple[actions.Action, ...]) -> None:
        for action in wanted:
            match action:
                case Consent():
                    self._tasks.start(CONSENT if action.accept else REFUSAL, partial(self._respond, action))
                case actions.AwaitApproval():
                    hint = f"dcfpca-participant approve {self.run_id} --by NAME --config …"
                    log("approval_awaited", level="warning", run=self.run_id, reason=action.reason or None, hint=hint)
                    self._tasks.start(NOTICE, self._notify)
                case actions.Compute():
                    self._tasks.start(COMPUTE, partial(self._answer, action))
                case actions.Finish():
                    self._tasks.start(FINISH, partial(self._finish, action))
                case actions.Forget():
                    log("run_ended", run=self.run_id, status=action.status, reason=action.reason)
                    self._tasks.cancel(MESSAGE)
                case actions.Export() | actions.RefuseExport():
                    self._tasks.start(f"export {action.export_id}", partial(self._export, action))
                case actions.LogRefusal():
                    log("assignment_refused", level="warning", run=self.run_id, kind=action.kind, reason=action.reason)
                case actions.AdvertiseRunKey() | actions.ShareGroupSecret() | actions.Complain():
                    self._tasks.start(f"tell {type(action).__name__}", partial(self._tell, action))
                case _:
                    ref = action.ref
                    self._tasks.start(f"{MESSAGE}{ref.round}.{ref.attempt}", partial(self._send, action))

    async def _notify(self) -> None:
        """Tell the people of the site that the run waits for them."""
        row = self._services.store.run(self.run_id)
        if row is None or row.approved:
            return
        spec = json.loads(row.spec)
        closes = row.proposed_ms / 1000 + float(spec.get("enrol_seconds", 0))
        until = datetime.fromtimestamp(closes, UTC).isoformat(timespec="seconds")
        await self._services.egress.notify(self._services.site.name, self.run_id, spec.get("label", ""), until)

    @cached_property
    def _agreed(self) -> Contract:
        assert self.session.terms is not None
        return Contract(self.run_id, self._services.site.name, self.session.terms)

    @cached_property
    def _step_flops(self) -> float:
        return self._agreed.terms.method.solver.step_flops(self._services.site.facts.columns)

    async def _respond(self, consent: Consent) -> None:
        """Sign and send the answer to the proposal."""
        if not consent.accept:
            await self._tasks.wait_for(CONSENT)  # a repetition of it that is on its way must not come after this
        services, run_id, reasons = self._services, self.run_id, consent.reasons
        name, accept, private = services.site.name, consent.accept, consent.private
        statement = consent_bytes(run_id, consent.digest, name, accept=accept, private=private, reasons=reasons)
        log("run_enrolled" if accept else "run_refused", run=run_id, reasons=list(reasons) or None)
        services.telemetry.answers.labels("enrolled" if accept else "refused").inc()
        signature = services.site.sign(statement)
        receipt = await services.egress.respond(wire_codec.encode_consent(run_id, consent, signature))
        fate = wire_codec.fate_of(receipt)
        log("answer_sent", run=run_id, fate=fate.value, reason=receipt.reason or None)
        if fate in (Fate.LATE, Fate.REJECTED) and self.session.opened is None:
            self.take(events.TurnedDown(receipt.reason))

    async def _send(self, action: actions.RoundMessage) -> None:
        """Send the message of an attempt; log and count what became of it. LATE is ordinary: a plain round closes
        without whoever is last."""
        ref, opened, services = action.ref, self.session.opened, self._services
        if isinstance(action, actions.SendMisfit):
            kind, receipt = "misfit", await services.egress.misfit(self._agreed, action)
        elif opened is None or opened.ref != ref:
            return  # another attempt is open by now, and the update would be late
        else:
            kind, update, stage = "update", self.session.update(ref), opened.consensus.stage
            receipt = await services.egress.submit(self._agreed, ref, update, stage, opened.ticket, len(opened.cohort))
        fate = wire_codec.fate_of(receipt)
        log(
            f"{kind}_sent",
            level="warning" if fate is Fate.REJECTED else "info" if kind == "update" else "debug",
            run=ref.run_id,
            round=ref.round,
            attempt=ref.attempt,
            fate=fate.value,
            reason=receipt.reason or None,
        )
        services.telemetry.messages.labels(kind, fate.value).inc()
        self.take(events.Acknowledged(ref))

    async def _tell(self, action: actions.RunMessage) -> None:
        receipt = await self._services.egress.tell(self._agreed, action)
        fate, what = wire_codec.fate_of(receipt), type(action).__name__
        log("run_message_sent", run=self.run_id, message=what, fate=fate.value, reason=receipt.reason or None)

    async def _answer(self, action: actions.Compute) -> None:
        """Answer a round. Whatever goes wrong while the run is open becomes a refusal; operators see those of secure
        runs."""
        started, services, known = time.monotonic(), self._services, self.session.step
        event: events.Answered | events.RoundRefused | events.FeaturesDiffer
        try:
            event = await answer_round(services, self._local, self._agreed, self.session, action, self._takes_part)
        except WorkCancelled:
            log("step_cancelled", run=self.run_id, round=action.round)
            return
        except SiteDiffers as found:
            event = events.FeaturesDiffer(action.round, found.notes)
        except Exception as error:
            services.telemetry.failures.inc()
            refusal = refusal_of(error, action.round)
            event = events.RoundRefused(action.round, refusal)
            if isinstance(refusal, SiteFailure):
                log("step_failed", level="error", run=self.run_id, round=action.round, reason=str(error))
                self._tasks.start(RETRY, self._retry)
        else:
            if event.step is not known:  # a later attempt at the round sends the update of the earlier
                seconds = time.monotonic() - started
                services.telemetry.step(self._step_flops, action.round, seconds)
                log("step_computed", level="debug", run=self.run_id, round=action.round, seconds=seconds)
        # The session may ask for the next step at once, and it has the same name.
        self._tasks.release(COMPUTE)
        self.take(event)

    async def _retry(self) -> None:
        await asyncio.sleep(RETRY_SECONDS)
        self._perform(self.session.resume())

    def _report(self, percent: int) -> None:
        opened = self.session.opened
        if opened is None or self.session.finished:
            return
        log("step_progress", run=self.run_id, round=opened.ref.round, percent=percent)
        if self._agreed.terms.spec.privacy is None:  # the speed of a step would reveal the number of columns
            work = partial(self._services.egress.report, self._agreed, opened.ref, percent)
            self._tasks.start(f"{MESSAGE}progress", work)

    async def _finish(self, action: actions.Finish) -> None:
        consent, verified = self.session.consent, None
        assert consent is not None
        if self._agreed.masked:
            try:
                verified = await final_is_verified(self._services, self._local, self._agreed, self.session, action)
                if not verified and self.session.end_refusal is not None:
                    raise self.session.end_refusal
            except SecureSumRefusal as error:
                self.take(events.EndRefused(error))
                return
            if not verified:
                hint = "the manifest says so, too; compare the SHA-256 of U.npy in it with other sites'"
                log("final_consensus_not_checked", level="warning", run=self.run_id, hint=hint)
        await until_written(self.run_id, lambda: self._local.finish(self._agreed, consent, action, verified))
        self._services.telemetry.results.inc()
        log("results_written", run=self.run_id, rounds=action.round, outcome=action.outcome)
        self.take(events.ResultsWritten(action.outcome))

    async def _export(self, action: actions.Export | actions.RefuseExport) -> None:
        """Send the reconstruction, or the reason why it is not sent."""
        await self._tasks.wait_for(FINISH)
        run_id, consent, services = self.run_id, self.session.consent, self._services
        reason = action.reason if isinstance(action, actions.RefuseExport) else ""
        if not reason and not has_result(services.results, run_id):
            reason = "this participant has no result of the run"
        if reason or consent is None:
            receipt = await services.egress.refuse_export(run_id, action.export_id, reason)
            log("export_refused", run=run_id, reason=reason, fate=wire_codec.fate_of(receipt).value)
            return
        receipts = await services.egress.export(consent.spec, run_id, action.export_id, services.results / run_id)
        log("reconstruction_exported", run=run_id, fates=[wire_codec.fate_of(receipt).value for receipt in receipts])


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

"""All runs of this aggregator: loads them at start, creates them from proposals, and stops them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from aggregator.change_signal import Signal
from aggregator.ended_runs import EndedRun, data_of, remembered
from aggregator.participant_directory import ParticipantDirectory
from aggregator.proposal import Proposal, new_run
from aggregator.run import events, exports
from aggregator.run.backup_recovery import ShownTicket, newer_attempt
from aggregator.run.enrolment import away_members, fewest_enrolled
from aggregator.run.state import Phase, Status
from aggregator.runner import Runner
from aggregator.store import run_rows
from aggregator.store.run_rows import HeldRun, StoredRun
from aggregator.store.thread import StoreThread
from aggregator.telemetry import Telemetry
from dcfpca.errors import DcfpcaError, UnusableState
from dcfpca.logs import log
from dcfpca.secagg.differencing_check import PastRun

T = TypeVar("T")

ANNOUNCE_ENDED_SECONDS = 7 * 86400
"""How long participants that were away are told that a run has ended."""
RUNS_AT_HAND = 100
"""Runs that are over and stay in memory, as many as the dashboard shows; older ones are read when asked for."""
SETTLE_SECONDS = 1.0
"""The daemons of a consortium start within moments of each other; the first ones must not close the enrolment."""


class RunRegistry:
    """The runs by id. `stage` fires when some participant may have something new to do.

    `runners` are those that are open and the newest that are over, `ended` the others that are over. `held` are those
    that are damaged or in a format this software does not know: listed, but not served.
    """

    def __init__(self, store: StoreThread, directory: ParticipantDirectory, telemetry: Telemetry | None = None) -> None:
        self.store, self.directory = store, directory
        self.telemetry = telemetry or Telemetry()
        self.runners: dict[str, Runner] = {}
        self.ended: dict[str, EndedRun] = {}
        self._in_use: WeakValueDictionary[str, Runner] = WeakValueDictionary()
        self.held: dict[str, HeldRun] = {}
        self.stage = Signal()
        self.draining = False
        self._enrolments: dict[str, EnrolmentTimer] = {}
        self._timers: set[asyncio.TimerHandle] = set()
        self._came_or_left = 0.0  # when some participant last did, by the clock of the event loop
        self._proposing = asyncio.Lock()
        self._in_progress: set[asyncio.Task[Any]] = set()
        directory.presence_changed = self._presence_changed

    async def start(self) -> None:
        """Load every participant and run; members of open cohorts have the grace period to reconnect."""
        await self.directory.load()
        for sentence in self.store.store.damage:
            log("store_damaged", level="error", reason=sentence, hint="dcfpca-aggregator check; deploy/RUNBOOK.md")
        for run_id in await self.store.do(lambda store: run_rows.run_ids(store.connection)):
            stored = await self._stored(run_id)
            if isinstance(stored, HeldRun):
                self.held[stored.run_id] = stored
                log("run_held", level="error", run=stored.run_id, reason=stored.reason, hint=stored.hint)
            else:
                await self._add(stored, restarted=True)
                self._shelve()
        unfinished = {run_id for run_id, runner in self.runners.items() if not runner.run.status.over}
        await self.store.do(lambda store: store.updates.keep_only(unfinished | self.held.keys()))
        for runner in self.runners.values():
            for name in runner.run.cohort:
                self._leave_after_grace(runner, name)

    def drain(self) -> None:
        """End the streams of participants and of operators that watch; the service is about to stop."""
        self.draining = True
        self.stage.fire()
        for runner in self.runners.values():
            runner.changed.fire()

    async def stop(self, patience: float = 10.0) -> None:
        """Stop every run, after waiting this long for the work that `complete` protects."""
        if self._in_progress:
            await asyncio.wait(self._in_progress, timeout=patience)
        for timer in self._timers:
            timer.cancel()
        for enrolment in self._enrolments.values():
            enrolment.cancel()
        await asyncio.gather(*(runner.stop() for runner in self.runners.values()))
        await asyncio.gather(*self._in_progress, return_exceptions=True)

    async def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work that runs to its end, audit entry included, even if the caller hangs up."""
        task = asyncio.create_task(work)
        self._in_progress.add(task)
        task.add_done_callback(self._in_progress.discard)
        return await asyncio.shield(task)

    async def propose(self, proposal: Proposal) -> Runner:
        """Create a run; a repeated request id returns the run it created before."""
        return await self.complete(self._propose(proposal))

    async def _propose(self, proposal: Proposal) -> Runner:
        async with self._proposing:
            earlier = await self.run_of_request(proposal.request_id)
            if earlier in self.held:
                raise UnusableState(f"run {earlier} cannot be served: {self.held[earlier].reason}")
            if earlier is None:
                return await self._create(proposal)
            return await self.find(earlier) or await self._read(earlier)  # its creation may not have been answered

    async def find(self, run_id: str) -> Runner | None:
        """The run of this id, read from the store if it ended long ago; None if there is none that can be served."""
        return await self._read(run_id) if run_id in self.ended else self.runners.get(run_id)

    async def _read(self, run_id: str) -> Runner:
        """A run from the store: the same object for all who use it at a time."""
        if (here := self._in_use.get(run_id)) is not None:
            return here
        stored = await self._stored(run_id)
        if isinstance(stored, HeldRun):
            raise UnusableState(f"run {run_id} cannot be served: {stored.reason}", stored.hint)
        if not stored.run.status.over:
            return await self._add(stored)
        here = self._in_use.setdefault(run_id, Runner(stored, self.store, self._stage_changed))
        await here.restart()
        self._hold_for_export(here)
        return here

    def _hold_for_export(self, runner: Runner) -> None:
        """Keep an ended run in memory while a site has yet to answer its export: sites hear only of runs in memory."""
        if exports.awaited(runner.run):
            self.runners[runner.run.run_id] = runner
            self.ended.pop(runner.run.run_id, None)

    def _shelve(self) -> None:
        """Keep in memory only the newest ended runs, and those with an export that some site has yet to answer."""
        over = [one for one in self.runners.values() if one.run.status.over and not exports.awaited(one.run)]
        for runner in sorted(over, key=lambda one: -one.run.created_at)[RUNS_AT_HAND:]:
            run_id = runner.run.run_id
            runner.final.cancel()
            self.telemetry.forget(run_id)
            self.ended[run_id], self._in_use[run_id] = remembered(runner.run, runner.spec), runner
            del self.runners[run_id]

    def newest(self, most: int | None = None) -> list[str]:
        """The ids of all runs that can be served, newest first; the first so many."""
        made = {run_id: runner.run.created_at for run_id, runner in self.runners.items()}
        made |= {run_id: one.created_at for run_id, one in self.ended.items()}
        return sorted(made, key=lambda run_id: made[run_id], reverse=True)[:most]

    async def _create(self, proposal: Proposal) -> Runner:
        earlier = await self.find(proposal.terms.spec.warm_start)
        if earlier and earlier.run.status is Status.FINISHED:
            await earlier.final.whole()
        made = new_run(proposal, earlier, self.store.now())
        run, request = made.run, proposal.request_id
        await self.store.do(lambda store: store.create_run(run, made.spec_bytes, request, made.consensus))
        digest, operator = run.spec_sha256.hex(), proposal.operator
        await self.store.record("run_proposed", actor=operator, run_id=run.run_id, spec_sha256=digest)
        log("run_proposed", run=run.run_id, method=made.terms.spec.method, operator=operator)
        runner = await self._add(made)
        self.stage.fire()
        return runner

    async def run_of_request(self, request_id: str) -> str | None:
        """The run that a proposal with this request id created before."""
        return await self.store.do(lambda store: run_rows.run_of_request(store.connection, request_id))

    async def _stored(self, run_id: str) -> StoredRun | HeldRun:
        return await self.store.do(lambda store: run_rows.read_run(store.connection, run_id))

    def open_runs(self) -> int:
        """The number of runs that have not ended."""
        return sum(not runner.run.status.over for runner in self.runners.values())

    def announced(self) -> list[Runner]:
        """The runs for which participants have assignments: all but those that ended long ago."""
        oldest = self.store.now() - ANNOUNCE_ENDED_SECONDS
        return [r for r in self.runners.values() if not r.run.status.over or r.run.ended_at > oldest]

    async def take_tickets(self, participant: str, tickets: Sequence[ShownTicket]) -> str | None:
        """Compare the tickets that a participant shows with its runs; one that a backup set back moves on or pauses.

        Returns the run, if there is one, whose consensus the participant is to bring along first.
        """
        for shown in tickets:
            runner = self.runners.get(shown.ref.run_id)
            if runner is None or (runner.run.cohort and participant not in runner.run.cohort):
                continue
            if self._is_wanted(runner, participant, shown):
                return shown.ref.run_id
            if not runner.run.status.over and (event := self._of_ticket(runner, participant, shown)) is not None:
                # A run whose store has failed must not keep the participant from its other runs.
                with suppress(DcfpcaError):
                    await runner.post(event)
        return None

    def _is_wanted(self, runner: Runner, participant: str, shown: ShownTicket) -> bool:
        """Whether the consensus is wanted that goes with a ticket, which is genuine and of a newer attempt."""
        if runner.run.status.over or runner.run.secure is None:
            return False
        digest = runner.round_sum.encoded().header.sha256
        newer = newer_attempt(runner.run, digest, participant, shown, self.store.now())
        return newer is not None and runner.returned.wants(participant, shown)

    def _of_ticket(self, runner: Runner, participant: str, shown: ShownTicket) -> events.Event | None:
        """What the ticket of a run that is open leads to; nothing while a cohort that may agree is not complete."""
        run, digest, at = runner.run, runner.round_sum.encoded().header.sha256, self.store.now()
        newer = newer_attempt(run, digest, participant, shown, at)
        if newer is None:
            # A member that is not ahead of this run, where another is: they cannot bring it forward together.
            ahead = runner.returned.refused()
            return newer_attempt(run, digest, *ahead, at) if ahead is not None and participant != ahead[0] else None
        log("site_ahead", level="warning", run=run.run_id, participant=participant, round=shown.ref.round)
        told, others = shown.announced, self.directory.connected() - {participant}
        match runner.returned.take(run, participant, shown, others):
            case "agreed" if told is not None:
                bound = {"previous_sum": told.previous_sum, "exponents": told.exponents, "misfits": told.misfits}
                return events.ConsensusReturned(at=at, ref=shown.ref, stage=told.stage, **bound)  # type: ignore[arg-type]
            case "awaited":
                return None
            case _:
                return newer

    def members_revoked(self, is_revoked: Callable[[str, str], bool]) -> None:
        """Certificates were revoked: tell every open run with a member whose last one was among them."""
        for runner in self.runners.values():
            for name in () if runner.run.status.over else runner.run.cohort:
                who = self.directory.records.get(name)
                if who is not None and is_revoked(name, who.fingerprint):
                    runner.tell(events.MemberRevoked(at=self.store.now(), participant=name))

    async def delete(self, run_id: str, actor: str, reason: str) -> None:
        """Delete a run that is over or held; recorded first, so that none disappears without a line in the log."""
        await self.store.record("run_deleted", actor=actor, run_id=run_id, reason=reason)
        await self.store.do(lambda store: store.delete_run(run_id))
        self.held.pop(run_id, None)
        self.ended.pop(run_id, None)
        if enrolment := self._enrolments.pop(run_id, None):
            enrolment.cancel()
        if runner := self.runners.pop(run_id, None):
            await runner.stop()
            runner.changed.fire()
        self.telemetry.forget(run_id)
        log("run_deleted", run=run_id, reason=reason or None)

    def expected(self, runner: Runner) -> frozenset[str]:
        """Those whose answer the enrolment of this run awaits.

        They are the sites that its spec names. If it names none, they are everybody connected and the members of the
        last run who are away, where the others would refuse to sum without them.
        """
        if runner.spec.participants:
            return frozenset(runner.spec.participants)
        connected = self.directory.connected()
        last = self._last_compared(runner)
        return connected | (away_members(runner.spec, runner.run, last, connected) if last else frozenset())

    def _last_compared(self, runner: Runner) -> PastRun | None:
        """The last secure run that may be over the same columns and has opened sums, or may yet."""
        data = data_of(runner.spec)
        here = (remembered(one.run, one.spec) for one in self.runners.values() if one is not runner)
        comparable = (one for one in (*here, *self.ended.values()) if one.summed and one.data == data)
        last = max(comparable, key=lambda one: one.created_at, default=None) if data[0] == "secure" else None
        return PastRun(last.run_id, last.cohort) if last else None

    def invites(self, run_id: str, name: str) -> bool:
        """Whether a participant was asked to take part in a run."""
        if (runner := self.runners.get(run_id)) is not None:
            return name in (runner.spec.participants or (name,))
        return (one := self.ended.get(run_id)) is not None and name in (one.invited or (name,))

    def enrolment_changed(self, run_id: str) -> None:
        """A participant answered the proposal of this run, so that its enrolment may be complete."""
        if enrolment := self._enrolments.get(run_id):
            enrolment.restart(self._came_or_left)

    async def _add(self, stored: StoredRun, *, restarted: bool = False) -> Runner:
        run_id = stored.run.run_id
        runner = Runner(stored, self.store, self._stage_changed)
        self.runners[run_id] = runner
        if runner.run.status is Status.ENROLLING:
            self._enrolments[run_id] = EnrolmentTimer(runner, self.expected, self.directory, self.store.now)
        self.telemetry.stage_changed(runner.run, None, self.store.now())
        await (runner.restart() if restarted else runner.start())
        self.enrolment_changed(run_id)
        return runner

    def _stage_changed(self, runner: Runner) -> None:
        if runner.run.status.over and (enrolment := self._enrolments.pop(runner.run.run_id, None)):
            enrolment.cancel()
        self.telemetry.stage_changed(runner.run, runner.round_sum.finished, self.store.now())
        if runner.run.status.over:
            self._hold_for_export(runner)
            self._shelve()
        if runner.run.phase != Phase.SUMMING:  # nobody has an assignment while the sum is formed
            self.stage.fire()

    def _presence_changed(self, name: str) -> None:
        connected = self.directory.is_connected(name)
        self._came_or_left = asyncio.get_running_loop().time()
        for runner in self.runners.values():
            if runner.run.status is Status.ENROLLING:
                self._enrolments[runner.run.run_id].restart(self._came_or_left)
            elif name in runner.run.cohort and not runner.run.status.over:
                if connected:
                    # Even if the run does not list it as absent: that event may still be in the queue.
                    runner.tell(events.Joined(at=self.store.now(), participant=name))
                else:
                    self._leave_after_grace(runner, name)
        self.stage.fire()

    def _leave_after_grace(self, runner: Runner, name: str) -> None:
        """Tell the run that a participant left, unless it reconnects within the grace period of the spec."""
        if runner.run.status.over:
            return

        def left() -> None:
            self._timers.discard(timer)
            if not self.directory.is_connected(name) and not runner.run.status.over:
                runner.tell(events.Left(at=self.store.now(), participant=name))

        timer = asyncio.get_running_loop().call_later(runner.spec.grace_seconds, left)
        self._timers.add(timer)


class EnrolmentTimer:
    """Closes the enrolment of a run whose spec names nobody once everyone expected has answered, and nobody has come or
    left for SETTLE_SECONDS."""

    def __init__(
        self,
        runner: Runner,
        expected: Callable[[Runner], frozenset[str]],
        directory: ParticipantDirectory,
        now: Callable[[], float],
    ) -> None:
        self._runner, self._expected, self._directory, self._now = runner, expected, directory, now
        self._timer: asyncio.TimerHandle | None = None

    def restart(self, came_or_left: float) -> None:
        """Start the wait again after a change; without effect while the enrolment is incomplete. `came_or_left` is when
        somebody last did, by the clock of the event loop."""
        self.cancel()
        if self._is_complete():
            self._timer = asyncio.get_running_loop().call_at(came_or_left + SETTLE_SECONDS, self._close)

    def cancel(self) -> None:
        """Stop the wait."""
        if self._timer:
            self._timer.cancel()

    def _is_complete(self) -> bool:
        run, connected = self._runner.run, self._directory.connected()
        if run.status is not Status.ENROLLING or self._runner.spec.participants:
            return False
        return len(connected) >= fewest_enrolled(self._runner.rules) and (
            self._expected(self._runner) <= run.enrolled.keys() | run.refusals.keys()
        )

    def _close(self) -> None:
        if self._is_complete():
            self._runner.tell(events.EnrolmentClosed(at=self._now()))

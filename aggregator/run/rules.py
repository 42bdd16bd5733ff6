"""`step`: the one function that decides what an event does to a run.

Two rules. Every change of a run goes through `step`, and an event that does not fit leaves the run unchanged. Nothing
here uses clocks, sockets or disks: what has to be done is returned as effects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from aggregator.run import backup_recovery, enrolment, events, exports, phases, round_messages
from aggregator.run.effects import Discard, Effect
from aggregator.run.state import Phase, Run, Status, ended
from dcfpca.attempt_ref import AttemptRef
from dcfpca.spec import RunSpec

Step = tuple[Run, tuple[Effect, ...]]


def step(spec: RunSpec, run: Run, event: events.Event) -> Step:
    """The run after this event, and the effects to perform."""
    match event:
        case events.Responded():
            return enrolment.respond(spec, run, event)
        case events.EnrolmentClosed():
            return enrolment.close(spec, run, event.at) if run.status is Status.ENROLLING else (run, ())
        case (
            events.KeysAdvertised()
            | events.SharesSent()
            | events.BoundStated()
            | events.UpdateReceived()
            | events.SurvivorsAttested()
            | events.SharesRevealed()
        ):
            return round_messages.receive(spec, run, event)
        case events.ConsensusReached():
            return _consensus_reached(spec, run, event)
        case events.SumFailed():
            return _sum_failed(spec, run, event)
        case events.UpdatesLost():
            current = is_current(run, event.ref)
            return phases.reopen_uncounted(spec, run, event.at, event.reason) if current else (run, ())
        case events.NewerAttemptShown():
            return backup_recovery.catch_up(spec, run, event)
        case events.Restarted():
            return _restarted(run, event), ()
        case events.DeadlinePassed():
            return _deadline_passed(spec, run, event)
        case events.Joined():
            return _joined(spec, run, event)
        case events.Left():
            return phases.progress(spec, replace(run, absent=run.absent | {event.participant}))
        case events.Aborted():
            return _aborted(run, event)
        case events.Resumed():
            return _resumed(spec, run, event), ()
        case events.ExportRequested():
            return exports.request(run, event), ()
        case events.FileExported() | events.ExportRefused():
            return exports.answer(run, event)
        case _:
            assert_never(event)


def is_current(run: Run, ref: AttemptRef) -> bool:
    """Whether this attempt is the open one."""
    return run.status is Status.RUNNING and run.attempt is not None and run.attempt.ref == ref


def _restarted(run: Run, event: events.Restarted) -> Run:
    if run.status not in (Status.ENROLLING, Status.RUNNING):
        return run
    return replace(run, restarted_at=event.at, back=frozenset())


def _joined(spec: RunSpec, run: Run, event: events.Joined) -> Step:
    who = event.participant
    if who in run.refusals:
        return run, ()
    if who in run.absent | run.silent:
        run = replace(run, absent=run.absent - {who}, silent=run.silent - {who})
    return phases.came_back(spec, run, who, event.at) if run.restarted_at else (run, ())


def _consensus_reached(spec: RunSpec, run: Run, event: events.ConsensusReached) -> Step:
    if not is_current(run, event.ref) or run.phase != Phase.SUMMING:
        return run, ()
    gone = (Discard(event.ref),)
    if event.outcome:
        return ended(run, Status.FINISHED, event.outcome, event.at), gone
    return phases.open_attempt(spec, replace(run, reason=""), event.ref.round + 1, 1, event.at), gone


def _sum_failed(spec: RunSpec, run: Run, event: events.SumFailed) -> Step:
    if not is_current(run, event.ref) or run.phase != Phase.SUMMING:
        return run, ()
    if event.fatal:
        return ended(run, Status.FAILED, event.reason, event.at), (Discard(event.ref),)
    return phases.reopen(spec, run, event.at, event.reason)


def _deadline_passed(spec: RunSpec, run: Run, event: events.DeadlinePassed) -> Step:
    if not is_current(run, event.ref) or run.phase != event.phase:
        return run, ()
    return phases.overdue(spec, run, event.at)


def _aborted(run: Run, event: events.Aborted) -> Step:
    if run.status.over:
        return run, ()
    gone = (Discard(run.attempt.ref),) if run.attempt else ()
    return ended(run, Status.ABORTED, event.reason, event.at), gone


def _resumed(spec: RunSpec, run: Run, event: events.Resumed) -> Run:
    if run.status is not Status.PAUSED or run.attempt is None:
        return run
    here = run.attempt.ref
    again = here.attempt + 1
    run = replace(run, status=Status.RUNNING, reason="", silent=frozenset())
    return phases.open_attempt(spec, run, here.round, again, event.at, first_attempt=again)

"""`step`: the one function that decides what an event does to a run.

Two rules. Every change of a run goes through `step`, and an event that does not fit leaves the run unchanged. Nothing
here uses clocks, sockets or disks: what has to be done is returned as effects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from aggregator.run import (
    backup_recovery,
    complaints,
    endings,
    enrolment,
    events,
    exports,
    fixed_cohort_rounds,
    phases,
    round_messages,
    waiting,
)
from aggregator.run.effects import Discard, Effect, Sum
from aggregator.run.state import Phase, Run, Status, ended, paused
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
        case events.RunKeyAdvertised() | events.GroupSecretShared():
            return fixed_cohort_rounds.receive_set_up(spec, run, event)
        case events.MisfitReported():
            refusal = round_messages.out_of_turn(run, event.participant, event.ref, Phase.UPLOADING)
            return fixed_cohort_rounds.receive_misfit(run, event, refusal)
        case events.Complained():
            return complaints.receive(run, event)
        case events.MemberRevoked():
            return fixed_cohort_rounds.revoked(spec, run, event.participant), ()
        case events.ConsensusReached():
            return _consensus_reached(spec, run, event)
        case events.SumFailed():
            return _sum_failed(spec, run, event)
        case events.UpdatesLost():
            return _updates_lost(spec, run, event)
        case events.NewerAttemptShown():
            return backup_recovery.catch_up(spec, run, event)
        case events.Restarted():
            return _restarted(spec, run, event), ()
        case events.DeadlinePassed():
            return _deadline_passed(spec, run, event)
        case events.Joined():
            return _joined(spec, run, event)
        case events.Left():
            if run.fixed_cohort is not None:
                return waiting.left(run, event.participant, event.at), ()
            return phases.progress(spec, replace(run, absent=run.absent | {event.participant}))
        case events.Aborted():
            return endings.abort(run, event)
        case events.FinishedByOperator():
            return endings.finish(spec, run, event)
        case events.Resumed():
            return _resumed(spec, run, event)
        case events.ExportRequested():
            return exports.request(run, event), ()
        case events.FileExported() | events.ExportRefused():
            return exports.answer(run, event)
        case events.ExportsLost():
            return exports.lost(run, event), ()
        case _:
            assert_never(event)


def is_current(run: Run, ref: AttemptRef) -> bool:
    """Whether this attempt is the open one."""
    return run.status is Status.RUNNING and run.attempt is not None and run.attempt.ref == ref


def _updates_lost(spec: RunSpec, run: Run, event: events.UpdatesLost) -> Step:
    if not is_current(run, event.ref) and not (run.fixed_cohort and run.attempt and run.attempt.ref == event.ref):
        return run, ()
    if run.fixed_cohort is not None:
        return fixed_cohort_rounds.updates_lost(run, event), ()
    return phases.reopen_uncounted(spec, run, event.at, event.reason)


def _restarted(spec: RunSpec, run: Run, event: events.Restarted) -> Run:
    if endings.is_of_first_edition(spec, run):
        return paused(run, endings.FIRST_EDITION)
    if run.status not in (Status.ENROLLING, Status.RUNNING):
        return run
    return replace(run, restarted_at=event.at, back=frozenset())


def _joined(spec: RunSpec, run: Run, event: events.Joined) -> Step:
    who = event.participant
    if who in run.refusals:
        return run, ()
    if who in run.absent | run.silent:
        run = replace(run, absent=run.absent - {who}, silent=run.silent - {who})
    if run.fixed_cohort is not None or not run.restarted_at:
        return run, ()
    return phases.came_back(spec, run, who, event.at)


def _consensus_reached(spec: RunSpec, run: Run, event: events.ConsensusReached) -> Step:
    if not is_current(run, event.ref) or run.phase != Phase.SUMMING:
        return run, ()
    gone = (Discard(event.ref),)
    if event.outcome:
        return ended(run, Status.FINISHED, event.outcome, event.at), gone
    if run.fixed_cohort is not None:
        return fixed_cohort_rounds.next_round(run, event), gone
    round = event.ref.round + 1
    return phases.open_attempt(spec, replace(run, reason=""), round, 1, event.at, consensus=event.consensus), gone


def _sum_failed(spec: RunSpec, run: Run, event: events.SumFailed) -> Step:
    if not is_current(run, event.ref) or run.phase != Phase.SUMMING:
        return run, ()
    if event.fatal:
        return ended(run, Status.FAILED, event.reason, event.at), (Discard(event.ref),)
    if run.fixed_cohort is not None:
        return paused(run, event.reason), ()
    return phases.reopen(spec, run, event.at, event.reason)


def _deadline_passed(spec: RunSpec, run: Run, event: events.DeadlinePassed) -> Step:
    if not is_current(run, event.ref) or run.phase != event.phase:
        return run, ()
    if run.fixed_cohort is not None:
        return waiting.overdue(spec, run, event.at)
    return phases.overdue(spec, run, event.at)


def _resumed(spec: RunSpec, run: Run, event: events.Resumed) -> Step:
    if run.status is not Status.PAUSED or run.attempt is None or endings.why_not_resumed(spec, run):
        return run, ()
    here = run.attempt.ref
    again = here.attempt + 1
    run = replace(run, status=Status.RUNNING, reason="", silent=frozenset())
    if run.fixed_cohort is not None:
        complete = run.attempt is not None and run.attempt.phase is Phase.SUMMING
        return waiting.resumed(run, event.at), ((Sum(here),) if complete else ())
    return phases.open_attempt(spec, run, here.round, again, event.at, first_attempt=again), ()

"""`step`: the one function that decides what an event does to a run.

Two rules. Every change of a run goes through `step`, and an event that does not fit leaves the run unchanged. Nothing
here uses clocks, sockets or disks: what has to be done is returned as effects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from aggregator.run import backup_recovery, endings, enrolment, events, exports, secure_rounds
from aggregator.run.attempts import Step, is_current
from aggregator.run.effects import Discard
from aggregator.run.round_rules import rules_of
from aggregator.run.state import Phase, Run, Status, ended
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms


def step(terms: Terms, run: Run, event: events.Event) -> Step:
    """The run after this event, and the effects to perform."""
    spec, rules = terms.spec, rules_of(terms.spec)
    match event:
        case events.Responded():
            return enrolment.respond(terms, run, event)
        case events.EnrolmentClosed():
            return enrolment.close(terms, run, event.at) if run.status is Status.ENROLLING else (run, ())
        case events.RunKeyAdvertised() | events.GroupSecretShared():
            return secure_rounds.receive_set_up(spec, run, event)
        case events.UpdateReceived():
            return rules.receive(spec, run, event)
        case events.MisfitReported():
            return secure_rounds.receive_misfit(run, event)
        case events.Complained():
            return secure_rounds.receive_complaint(run, event)
        case events.MemberRevoked():
            return secure_rounds.member_revoked(spec, run, event.participant), ()
        case events.ConsensusReached():
            return _consensus_reached(spec, run, event)
        case events.SumFailed():
            return _sum_failed(spec, run, event)
        case events.UpdatesLost():
            return rules.updates_lost(spec, run, event)
        case events.NewerAttemptShown():
            return backup_recovery.catch_up(spec, run, event)
        case events.Restarted():
            open_ = run.status in (Status.ENROLLING, Status.RUNNING)
            return (replace(run, restarted_at=event.at, back=frozenset()) if open_ else run), ()
        case events.DeadlinePassed():
            due = is_current(run, event.ref) and run.phase == event.phase
            return rules.overdue(spec, run, event.at) if due else (run, ())
        case events.Joined():
            return _joined(spec, run, event)
        case events.Left():
            return rules.left(spec, run, event)
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


def _joined(spec: RunSpec, run: Run, event: events.Joined) -> Step:
    who = event.participant
    if who in run.refusals:
        return run, ()
    if who in run.absent | run.silent:
        run = replace(run, absent=run.absent - {who}, silent=run.silent - {who})
    return rules_of(spec).joined(spec, run, event)


def _consensus_reached(spec: RunSpec, run: Run, event: events.ConsensusReached) -> Step:
    if not is_current(run, event.ref) or run.phase != Phase.SUMMING:
        return run, ()
    gone = (Discard(event.ref),)
    if event.outcome:
        return ended(run, Status.FINISHED, event.outcome, event.at), gone
    return rules_of(spec).next_round(spec, run, event), gone


def _sum_failed(spec: RunSpec, run: Run, event: events.SumFailed) -> Step:
    if not is_current(run, event.ref) or run.phase != Phase.SUMMING:
        return run, ()
    if event.fatal:
        return ended(run, Status.FAILED, event.reason, event.at), (Discard(event.ref),)
    return rules_of(spec).sum_failed(spec, run, event)


def _resumed(spec: RunSpec, run: Run, event: events.Resumed) -> Step:
    if run.status is not Status.PAUSED or run.attempt is None or endings.why_not_resumed(run):
        return run, ()
    run = replace(run, status=Status.RUNNING, reason="", silent=frozenset())
    return rules_of(spec).resumed(spec, run, event.at)

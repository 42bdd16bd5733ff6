"""`step`: the one function that decides what an event does to a run.

Two rules. Every change of a run goes through `step`, and an event that does not fit leaves the run unchanged. Nothing
here uses clocks, sockets or disks: what has to be done is returned as effects.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from aggregator.run import backup_recovery, enrolment, events, exports
from aggregator.run.attempts import (
    ACCEPTED,
    DUPLICATE,
    OUTSIDER,
    Assignment,
    Discard,
    Kind,
    RenumberConsensus,
    Step,
    is_current,
    standby,
    why_not_finished,
)
from aggregator.run.plain_rounds import PlainRounds
from aggregator.run.secure_rounds import SecureRounds
from aggregator.run.state import Phase, Run, Status, StoredComplaint, ended, with_complaint
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms

RoundRules = SecureRounds | PlainRounds
"""What differs between secure and plain runs, chosen once per run. Both have the same methods."""


def rules_of(terms: Terms) -> RoundRules:
    """The rules of a run of these terms. A secure sum is the default; who wants a plain one has to say so."""
    return PlainRounds(terms) if terms.spec.aggregation == "plain" else SecureRounds(terms)


def step(rules: RoundRules, run: Run, event: events.Event) -> Step:
    """The run after this event, and the effects to perform."""
    match event:
        case events.UpdateReceived():
            return rules.receive(run, event)
        case events.ConsensusReached():
            return _consensus_reached(rules, run, event)
        case events.Responded():
            return enrolment.respond(rules, run, event)
        case events.EnrolmentClosed():
            return enrolment.close(rules, run, event.at) if run.status is Status.ENROLLING else (run, ())
        case events.RunKeyAdvertised() | events.GroupSecretShared() | events.MisfitReported():
            return rules.receive_step(run, event)
        case events.Complained():
            return _complained(rules, run, event)
        case events.MemberRevoked():
            return rules.revoked(run, event.participant), ()
        case events.SumFailed():
            return _sum_failed(rules, run, event)
        case events.UpdatesLost():
            return rules.updates_lost(run, event)
        case events.NewerAttemptShown():
            return backup_recovery.catch_up(rules, run, event)
        case events.ConsensusReturned():
            return backup_recovery.brought_forward(run, event)
        case events.Restarted():
            open_ = run.status in (Status.ENROLLING, Status.RUNNING)
            return (replace(run, restarted_at=event.at, back=frozenset()) if open_ else run), ()
        case events.DeadlinePassed():
            due = is_current(run, event.ref) and run.phase == event.phase
            return rules.overdue(run, event.at) if due else (run, ())
        case events.Joined():
            return _joined(rules, run, event)
        case events.Left():
            return rules.left(run, event)
        case events.Aborted():
            return _aborted(run, event)
        case events.FinishedByOperator():
            return _finished(rules, run, event)
        case events.Resumed():
            return _resumed(rules, run, event)
        case events.ExportRequested():
            return exports.request(run, event), ()
        case events.FileExported() | events.ExportRefused():
            return exports.answer(run, event)
        case events.ExportsLost():
            return exports.lost(run, event), ()
        case _:
            assert_never(event)


def deadline(rules: RoundRules, run: Run) -> float | None:
    """When enrolment closes, or something is due in the open round; None while nothing is awaited from participants.

    After a restart it is extended, so that participants have the time to reconnect.
    """
    if run.status is not Status.ENROLLING:
        return rules.deadline(run)
    spec = rules.spec
    patience = min(spec.enrol_seconds, spec.round_seconds) if run.restarted_at else 0.0
    return max(run.created_at + spec.enrol_seconds, run.restarted_at + patience)


def awaited(rules: RoundRules, run: Run) -> tuple[str, ...]:
    """The participants whose answer a running run waits for; empty for any other run."""
    return rules.awaited(run) if run.status is Status.RUNNING else ()


def assignments(rules: RoundRules, run: Run, participant: str) -> list[Assignment]:
    """Everything that is wanted of this participant in this run, in the order to do it: a function of the run's state.

    Level-triggered: a stream that reconnects receives the same assignments again, and a participant answers a repeat
    with the same bytes, or not at all if its answer was acknowledged; in a secure run only what is missing is asked
    for, and a repeat is always answered. So there is no outbox that could be lost or sent twice.
    """
    if run.status is Status.ENROLLING:
        return _proposal(rules.spec, run, participant)
    # A run that ended before it had a cohort has finished for those who had enrolled.
    if participant not in (run.cohort or run.enrolled) or participant in run.refusals:
        return []
    if run.status is Status.RUNNING and run.attempt is not None:
        return rules.wanted(run, run.attempt, participant)
    if run.status is Status.PAUSED and run.attempt is not None:
        return [standby(run.attempt, f"the run is paused: {run.reason}")]
    return [Assignment(f"{run.run_id}/finished", Kind.RUN_FINISHED), *_export(run, participant)]


def _proposal(spec: RunSpec, run: Run, participant: str) -> list[Assignment]:
    invited = not spec.participants or participant in spec.participants
    if not invited or participant in run.enrolled or participant in run.refusals:
        return []
    return [Assignment(f"{run.run_id}/proposed", Kind.RUN_PROPOSED)]


def _export(run: Run, participant: str) -> list[Assignment]:
    if run.export is None or run.export.is_answered_by(participant):
        return []
    return [Assignment(f"{run.run_id}/export/{run.export.export_id}", Kind.EXPORT_WANTED)]


def _consensus_reached(rules: RoundRules, run: Run, event: events.ConsensusReached) -> Step:
    if not is_current(run, event.ref) or run.phase != Phase.SUMMING:
        return run, ()
    gone = (Discard(event.ref),)
    if event.outcome:
        return ended(run, Status.FINISHED, event.outcome, event.at), gone
    return rules.next_round(run, event), gone


def _sum_failed(rules: RoundRules, run: Run, event: events.SumFailed) -> Step:
    if not is_current(run, event.ref) or run.phase != Phase.SUMMING:
        return run, ()
    if event.fatal:
        return ended(run, Status.FAILED, event.reason, event.at), (Discard(event.ref),)
    return rules.sum_failed(run, event)


def _complained(rules: RoundRules, run: Run, event: events.Complained) -> Step:
    """Keep a complaint, whose signature was checked, for the operators."""
    who = event.participant
    if who not in run.cohort:
        return run, (OUTSIDER,)
    complaint = StoredComplaint(
        who, event.accused, event.error, event.sentence, event.at, event.certificate, event.signature
    )
    if any(replace(one, at=event.at) == complaint for one in run.complaints):
        return run, (DUPLICATE,)
    run = with_complaint(run, complaint)
    return (rules.accused(run, complaint) if event.accused else run), (ACCEPTED,)


def _joined(rules: RoundRules, run: Run, event: events.Joined) -> Step:
    who = event.participant
    if who in run.refusals:
        return run, ()
    if who in run.absent | run.silent:
        run = replace(run, absent=run.absent - {who}, silent=run.silent - {who})
    return rules.joined(run, event)


def _aborted(run: Run, event: events.Aborted) -> Step:
    """End a run without a result."""
    if run.status.over:
        return run, ()
    gone = (Discard(run.attempt.ref),) if run.attempt else ()
    return ended(run, Status.ABORTED, event.reason, event.at), gone


def _finished(rules: RoundRules, run: Run, event: events.FinishedByOperator) -> Step:
    """End a run with the consensus that its open round began with."""
    if run.attempt is None or why_not_finished(rules.spec, run):
        return run, ()
    here = run.attempt.ref
    effects = (Discard(here), RenumberConsensus(here.round, final=True))
    return ended(run, Status.FINISHED, event.reason, event.at), effects


def _resumed(rules: RoundRules, run: Run, event: events.Resumed) -> Step:
    if run.status is not Status.PAUSED or run.attempt is None or rules.why_not_resumed(run):
        return run, ()
    run = replace(run, status=Status.RUNNING, reason="", silent=frozenset())
    return rules.resumed(run, event.at)

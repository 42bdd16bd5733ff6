"""Which assignments a participant has now: a function of the run's state and nothing else.

Level-triggered: a stream that reconnects receives the same assignments again, and a participant answers a repeat with
the same bytes, or not at all if its answer was acknowledged; in a fixed cohort only what is missing is asked for, and a
repeat is always answered. So there is no outbox that could be lost or sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aggregator.run import exports, waiting
from aggregator.run.phases import candidates
from aggregator.run.records import FixedCohort
from aggregator.run.state import Attempt, Phase, Run, Status
from dcfpca.spec import RunSpec


class Kind(StrEnum):
    """What a participant is asked to do; the values name the fields of the wire's `Assignment`."""

    RUN_PROPOSED = "run_proposed"
    ROUND_OPENED = "round_opened"
    KEYS_RELAYED = "keys_relayed"
    MASK_WANTED = "mask_wanted"
    SURVIVORS_ANNOUNCED = "survivors_announced"
    UNMASK_WANTED = "unmask_wanted"
    RUN_KEY_WANTED = "run_key_wanted"
    ROSTER_CLOSED = "roster_closed"
    GROUP_SHARES_RELAYED = "group_shares_relayed"
    STANDBY = "standby"
    RUN_FINISHED = "run_finished"
    EXPORT_WANTED = "export_wanted"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One assignment, not yet encoded. `reason` says why a participant stands by."""

    key: str
    kind: Kind
    reason: str = ""


# The assignment with which each phase of an attempt begins, in the order of the phases.
_KIND_OF_PHASE = {
    Phase.ADVERTISING: Kind.ROUND_OPENED,
    Phase.SHARING: Kind.KEYS_RELAYED,
    Phase.UPLOADING: Kind.MASK_WANTED,
    Phase.ATTESTING: Kind.SURVIVORS_ANNOUNCED,
    Phase.UNMASKING: Kind.UNMASK_WANTED,
}
_ORDER = tuple(_KIND_OF_PHASE)


def assignments(spec: RunSpec, run: Run, participant: str) -> list[Assignment]:
    """Everything that is wanted of this participant in this run, in the order to do it."""
    if run.status is Status.ENROLLING:
        return _proposal(spec, run, participant)
    # A run that ended before it had a cohort has finished for those who had enrolled.
    if participant not in (run.cohort or run.enrolled) or participant in run.refusals:
        return []
    if run.status is Status.RUNNING and run.attempt is not None:
        if run.fixed_cohort is not None:
            return _in_fixed_cohort(run, run.attempt, run.fixed_cohort, participant)
        return _in_attempt(run, run.attempt, participant)
    if run.status is Status.PAUSED and run.attempt is not None:
        return [_standby(run.attempt, f"the run is paused: {run.reason}")]
    return [Assignment(f"{run.run_id}/finished", Kind.RUN_FINISHED), *_export(run, participant)]


def _proposal(spec: RunSpec, run: Run, participant: str) -> list[Assignment]:
    invited = not spec.participants or participant in spec.participants
    if not invited or participant in run.enrolled or participant in run.refusals:
        return []
    return [Assignment(f"{run.run_id}/proposed", Kind.RUN_PROPOSED)]


def _in_attempt(run: Run, attempt: Attempt, participant: str) -> list[Assignment]:
    """The assignments of this attempt up to its present phase, so that a restarted participant can continue.

    A participant that missed a phase stands by for the next round.
    """
    if attempt.phase is Phase.SUMMING:
        return []
    if participant not in candidates(run, attempt):
        return [_standby(attempt, f"round {attempt.ref.round} goes on without this participant")]
    # A plain attempt is opened in the uploading phase, with one assignment.
    last = _ORDER.index(attempt.phase) if attempt.roster else 0
    return [Assignment(_key(attempt, phase.value), _KIND_OF_PHASE[phase]) for phase in _ORDER[: last + 1]]


def _in_fixed_cohort(run: Run, attempt: Attempt, fixed: FixedCohort, participant: str) -> list[Assignment]:
    """The one thing that is wanted of a member; who has done it stands by.

    The others' shares of the group secret go before the round until a first update shows that they were opened.
    """
    if attempt.phase is Phase.SUMMING:
        return []
    if participant not in (lacking := waiting.missing(run)):
        return [_standby(attempt, f"waiting for {', '.join(lacking)}")]
    match attempt.phase:
        case Phase.ADVERTISING:
            return [Assignment(f"{run.run_id}/set-up/key", Kind.RUN_KEY_WANTED)]
        case Phase.SHARING:
            return [Assignment(f"{run.run_id}/set-up/roster", Kind.ROSTER_CLOSED)]
        case _:
            relayed = Assignment(f"{run.run_id}/set-up/shares", Kind.GROUP_SHARES_RELAYED)
            opened = Assignment(_key(attempt, "opened"), Kind.ROUND_OPENED)
            return [opened] if participant in fixed.ready else [relayed, opened]


def _standby(attempt: Attempt, reason: str) -> Assignment:
    return Assignment(_key(attempt, "standby"), Kind.STANDBY, reason)


def _key(attempt: Attempt, what: str) -> str:
    ref = attempt.ref
    return f"{ref.run_id}/{ref.round}.{ref.attempt}/{what}"


def _export(run: Run, participant: str) -> list[Assignment]:
    if run.export is None or exports.is_answered(run.export, participant):
        return []
    return [Assignment(f"{run.run_id}/export/{run.export.export_id}", Kind.EXPORT_WANTED)]

"""Which assignments a participant has now: a function of the run's state and nothing else.

Level-triggered: a stream that reconnects receives the same assignments again, and a participant answers a repeat with
the same bytes, or not at all if its answer was acknowledged; in a secure run only what is missing is asked for, and a
repeat is always answered. So there is no outbox that could be lost or sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from aggregator.run import exports, waiting
from aggregator.run.state import Attempt, Phase, Run, SecureSum, Status
from dcfpca.spec import RunSpec


class Kind(StrEnum):
    """What a participant is asked to do; the values name the fields of the wire's `Assignment`."""

    RUN_PROPOSED = "run_proposed"
    ROUND_OPENED = "round_opened"
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


def assignments(spec: RunSpec, run: Run, participant: str) -> list[Assignment]:
    """Everything that is wanted of this participant in this run, in the order to do it."""
    if run.status is Status.ENROLLING:
        return _proposal(spec, run, participant)
    # A run that ended before it had a cohort has finished for those who had enrolled.
    if participant not in (run.cohort or run.enrolled) or participant in run.refusals:
        return []
    if run.status is Status.RUNNING and run.attempt is not None:
        if run.secure is None:
            return _in_plain_round(run.attempt)
        return _in_secure_run(run, run.attempt, run.secure, participant)
    if run.status is Status.PAUSED and run.attempt is not None:
        return [_standby(run.attempt, f"the run is paused: {run.reason}")]
    return [Assignment(f"{run.run_id}/finished", Kind.RUN_FINISHED), *_export(run, participant)]


def _proposal(spec: RunSpec, run: Run, participant: str) -> list[Assignment]:
    invited = not spec.participants or participant in spec.participants
    if not invited or participant in run.enrolled or participant in run.refusals:
        return []
    return [Assignment(f"{run.run_id}/proposed", Kind.RUN_PROPOSED)]


def _in_secure_run(run: Run, attempt: Attempt, secure: SecureSum, participant: str) -> list[Assignment]:
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
            return [opened] if participant in secure.ready else [relayed, opened]


def _in_plain_round(attempt: Attempt) -> list[Assignment]:
    """The round, until it closes; a site whose update was acknowledged does not answer a repeat."""
    if attempt.phase is Phase.SUMMING:
        return []
    return [Assignment(_key(attempt, "opened"), Kind.ROUND_OPENED)]


def _standby(attempt: Attempt, reason: str) -> Assignment:
    return Assignment(_key(attempt, "standby"), Kind.STANDBY, reason)


def _key(attempt: Attempt, what: str) -> str:
    ref = attempt.ref
    return f"{ref.run_id}/{ref.round}.{ref.attempt}/{what}"


def _export(run: Run, participant: str) -> list[Assignment]:
    if run.export is None or exports.is_answered(run.export, participant):
        return []
    return [Assignment(f"{run.run_id}/export/{run.export.export_id}", Kind.EXPORT_WANTED)]

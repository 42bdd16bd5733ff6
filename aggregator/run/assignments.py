"""Which assignments a participant has now: a function of the run's state and nothing else.

Level-triggered: a stream that reconnects receives the same assignments again, and a participant answers a repeat with
the same bytes, or not at all if its answer was acknowledged; in a secure run only what is missing is asked for, and a
repeat is always answered. So there is no outbox that could be lost or sent twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from aggregator.run.state import Attempt, Run, Status
from dcfpca.spec import RunSpec

if TYPE_CHECKING:
    from aggregator.run.rules import RoundRules


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


def assignments(rules: RoundRules, run: Run, participant: str) -> list[Assignment]:
    """Everything that is wanted of this participant in this run, in the order to do it."""
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


def standby(attempt: Attempt, reason: str) -> Assignment:
    """The participant has nothing to do, and this is why."""
    ref = attempt.ref
    return Assignment(f"{ref.run_id}/{ref.round}.{ref.attempt}/standby", Kind.STANDBY, reason)


def round_opened(attempt: Attempt) -> Assignment:
    """The open attempt waits for the participant's update."""
    ref = attempt.ref
    return Assignment(f"{ref.run_id}/{ref.round}.{ref.attempt}/opened", Kind.ROUND_OPENED)


def _export(run: Run, participant: str) -> list[Assignment]:
    if run.export is None or run.export.is_answered_by(participant):
        return []
    return [Assignment(f"{run.run_id}/export/{run.export.export_id}", Kind.EXPORT_WANTED)]

"""The open attempt at a round, in secure and plain runs alike: what a step asks the runner to do, the replies to
messages, and what participants are asked to do."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from aggregator.run.state import Attempt, Phase, Run, Status
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.encoding import canonical
from dcfpca.spec import RunSpec
from dcfpca.wire.receipt import Fate


@dataclass(frozen=True, slots=True)
class Reply:
    """Tell the sender what became of its message."""

    fate: Fate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Add this accepted update to the running sum of its attempt."""

    ref: AttemptRef
    participant: str
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Sum:
    """Compute the next consensus from the running sum of this attempt."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete the stored updates and the running sum of this attempt, which is over."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class RenumberConsensus:
    """Give the consensus of the open round this round number; `final` when it becomes the run's result."""

    round: int
    final: bool = False


@dataclass(frozen=True, slots=True)
class AdoptReturned:
    """Go on with the consensus of this attempt that the sites have returned."""

    ref: AttemptRef


Effect = Reply | Accumulate | Sum | Discard | RenumberConsensus | AdoptReturned
Step = tuple[Run, tuple[Effect, ...]]
"""What an event leads to: the run after it, and what is to be done."""

ACCEPTED = Reply(Fate.ACCEPTED)
DUPLICATE = Reply(Fate.DUPLICATE, "this message had been accepted before")
STAMP_BYTES = 8
OUTSIDER = Reply(Fate.REJECTED, "this participant is not in the run's cohort")


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


def standby(attempt: Attempt, reason: str) -> Assignment:
    """The participant has nothing to do, and this is why."""
    ref = attempt.ref
    return Assignment(f"{ref.run_id}/{ref.round}.{ref.attempt}/standby", Kind.STANDBY, reason)


def round_opened(attempt: Attempt) -> Assignment:
    """The open attempt waits for the participant's update."""
    ref = attempt.ref
    return Assignment(f"{ref.run_id}/{ref.round}.{ref.attempt}/opened", Kind.ROUND_OPENED)


def open_attempt(
    run: Run, round: int, attempt: int, at: float, *, first_attempt: int = 1, phase: Phase = Phase.UPLOADING
) -> Run:
    """The run with a fresh attempt at this round."""
    ref = AttemptRef(run.run_id, round, attempt)
    return replace(run, attempt=Attempt(ref=ref, first_attempt=first_attempt, phase=phase, opened_at=at))


def is_current(run: Run, ref: AttemptRef) -> bool:
    """Whether this attempt is the open one."""
    return run.status is Status.RUNNING and run.attempt is not None and run.attempt.ref == ref


def out_of_turn(run: Run, participant: str, ref: AttemptRef) -> Reply | None:
    """Why an update for this attempt cannot be accepted from this participant now; None when it can."""
    if run.cohort and participant not in run.cohort:
        return OUTSIDER
    if run.status is not Status.RUNNING or run.attempt is None:
        return Reply(Fate.LATE, f"the run is {run.status.value}")
    here = run.attempt
    if ref > here.ref:
        return Reply(Fate.REJECTED, f"{ref} is not open yet")
    if ref < here.ref or here.phase is Phase.SUMMING:
        return Reply(Fate.LATE, f"{ref} is past {Phase.UPLOADING.value}")
    if here.phase is not Phase.UPLOADING:
        return Reply(Fate.REJECTED, f"{ref} is still {here.phase.value}")
    return None


def why_not_finished(spec: RunSpec, run: Run) -> str:
    """Why the run cannot be finished with the consensus it has; empty if it can."""
    if run.status not in (Status.RUNNING, Status.PAUSED) or run.attempt is None:
        return f"run {run.run_id} is {run.status.value}"
    # The first sum of the method gives the first consensus that a result can be formed from.
    if run.attempt.ref.round <= spec.rounds_before_fit + 1:
        return f"run {run.run_id} has no result yet: round {spec.rounds_before_fit + 1} has not been summed"
    return ""


def ticket_of(run: Run, attempt: Attempt, consensus: bytes) -> bytes:
    """The ticket of this attempt, which begins with the consensus of this digest; empty if the run has no seal."""
    ref, stamp = attempt.ref, int(attempt.opened_at * 1000).to_bytes(STAMP_BYTES, "big")
    return stamp + seal_of(run.seal, run.run_id, ref.round, ref.attempt, consensus, stamp) if run.seal else b""


@lru_cache(maxsize=32)
def seal_of(key: bytes, *statement: str | int | bytes) -> bytes:
    """The part of a ticket that only this run can have made. Kept for a while: all updates of an attempt show it."""
    return hmac.digest(key, canonical("ticket", *statement), "sha256")

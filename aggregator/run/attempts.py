"""The open attempt at a round: how it begins, and whether a message is in its turn. Of secure and plain runs alike."""

from __future__ import annotations

from dataclasses import replace

from aggregator.run.effects import Effect, Reply
from aggregator.run.state import Attempt, Phase, Run, Status
from dcfpca.run_references import AttemptRef
from dcfpca.wire.receipt import Fate

Step = tuple[Run, tuple[Effect, ...]]
"""What an event leads to: the run after it, and what is to be done."""


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
        return Reply(Fate.REJECTED, "this participant is not in the run's cohort")
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

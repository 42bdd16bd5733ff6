"""What operators may do with a run that does not end by itself: abort it, finish it, or resume it."""

from __future__ import annotations

from aggregator.run import events
from aggregator.run.attempts import Step
from aggregator.run.effects import Discard, RenumberConsensus
from aggregator.run.state import Run, Status, ended
from dcfpca.spec import RunSpec


def abort(run: Run, event: events.Aborted) -> Step:
    """End a run without a result."""
    if run.status.over:
        return run, ()
    gone = (Discard(run.attempt.ref),) if run.attempt else ()
    return ended(run, Status.ABORTED, event.reason, event.at), gone


def why_not_finished(spec: RunSpec, run: Run) -> str:
    """Why the run cannot be finished with the consensus it has; empty if it can."""
    if run.status not in (Status.RUNNING, Status.PAUSED) or run.attempt is None:
        return f"run {run.run_id} is {run.status.value}"
    # The first sum of the method gives the first consensus that a result can be formed from.
    if run.attempt.ref.round <= spec.rounds_before_fit + 1:
        return f"run {run.run_id} has no result yet: round {spec.rounds_before_fit + 1} has not been summed"
    return ""


def finish(spec: RunSpec, run: Run, event: events.FinishedByOperator) -> Step:
    """End a run with the consensus that its open round began with."""
    if run.attempt is None or why_not_finished(spec, run):
        return run, ()
    here = run.attempt.ref
    effects = (Discard(here), RenumberConsensus(here.round, final=True))
    return ended(run, Status.FINISHED, event.reason, event.at), effects


def why_not_resumed(run: Run) -> str:
    """Why a paused run cannot go on; empty if it can."""
    # A plain run never pauses for a withdrawal: it goes on without, or fails.
    if run.secure is not None and (gone := sorted(set(run.cohort) & run.refusals.keys())):
        have = "has" if len(gone) == 1 else "have"
        return f"{', '.join(gone)} {have} withdrawn, and every sum of this run is over its whole cohort"
    return ""

"""For whom a run with a fixed cohort waits, since when, and when its patience ends.

A member that is away is awaited from the moment its absence is noticed, one that is connected from the moment the
phase began, once the deadline of the phase has passed. After the spec's `patience` the run pauses; what was accepted
stays, and `run resume` goes on where it was.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from aggregator.run.effects import Effect
from aggregator.run.records import FixedCohort
from aggregator.run.state import Attempt, Phase, Run, Status, paused
from dcfpca.spec import RunSpec

Step = tuple[Run, tuple[Effect, ...]]


def answered(fixed: FixedCohort, attempt: Attempt) -> Collection[str]:
    """Who has answered in the present phase."""
    match attempt.phase:
        case Phase.ADVERTISING:
            return fixed.adverts.keys()
        case Phase.SHARING:
            return fixed.shares.keys()
        case _:
            return attempt.updates.keys()


def missing(run: Run) -> tuple[str, ...]:
    """The members whose answer the present phase lacks; nobody while the sum is formed."""
    if run.fixed_cohort is None or run.attempt is None or run.status.over or run.attempt.phase is Phase.SUMMING:
        return ()
    done = answered(run.fixed_cohort, run.attempt)
    return tuple(name for name in run.cohort if name not in done)


def deadline(spec: RunSpec, run: Run) -> float | None:
    """When the next member becomes late, or the patience with one ends; None while nobody is awaited."""
    lacking = missing(run)
    if run.fixed_cohort is None or run.status is not Status.RUNNING or not lacking:
        return None
    waiting = run.fixed_cohort.waiting
    ends = [_patience_ends(spec, run, name) for name in lacking if name in waiting]
    return min(ends + ([_due(spec, run)] if len(ends) < len(lacking) else []))


def _due(spec: RunSpec, run: Run) -> float:
    """The deadline of the phase; after a restart members have as long to reconnect."""
    assert run.attempt is not None
    return max(run.attempt.opened_at, run.restarted_at) + spec.round_seconds


def _patience_ends(spec: RunSpec, run: Run, name: str) -> float:
    assert run.fixed_cohort is not None
    end = run.fixed_cohort.waiting[name] + spec.patience
    if name not in run.absent:
        return max(end, _due(spec, run))
    return max(end, run.restarted_at + spec.round_seconds) if run.restarted_at else end


def overdue(spec: RunSpec, run: Run, at: float) -> Step:
    """The deadline passed: note who is late, and pause when the patience with somebody has ended."""
    due = deadline(spec, run)
    if due is None or at < due or run.fixed_cohort is None:
        return run, ()
    waiting = run.fixed_cohort.waiting
    if given_up := [name for name in missing(run) if name in waiting and _patience_ends(spec, run, name) <= at]:
        return paused(run, _pause_reason(run, given_up)), ()
    assert run.attempt is not None
    late = {name: run.attempt.opened_at for name in missing(run) if name not in waiting}
    return _with_waiting(run, {**waiting, **late}), ()


def left(run: Run, participant: str, at: float) -> Run:
    """A member went away; if its answer is missing, it is awaited from now on."""
    run = replace(run, absent=run.absent | {participant})
    if run.fixed_cohort is None or participant not in missing(run):
        return run
    return _with_waiting(run, {participant: at, **run.fixed_cohort.waiting})


def heard(run: Run, participant: str) -> Run:
    """A member answered."""
    if run.fixed_cohort is None or participant not in run.fixed_cohort.waiting:
        return run
    return _with_waiting(run, {name: at for name, at in run.fixed_cohort.waiting.items() if name != participant})


def begun(run: Run, at: float) -> Run:
    """A new phase or attempt begins: of those who are missing, the absent ones are awaited from now on."""
    return _with_waiting(run, {name: at for name in missing(run) if name in run.absent})


def resumed(run: Run, at: float) -> Run:
    """An operator gives everybody who is awaited the spec's patience again."""
    assert run.fixed_cohort is not None
    lacking = missing(run)
    return _with_waiting(run, {name: at for name in run.fixed_cohort.waiting if name in lacking})


def last_said(run: Run, participant: str) -> str:
    """The last sentence that a participant sent about the run; empty if it sent none."""
    return next((one.sentence for one in reversed(run.complaints) if one.participant == participant), "")


def _with_waiting(run: Run, waiting: dict[str, float]) -> Run:
    assert run.fixed_cohort is not None
    return replace(run, fixed_cohort=replace(run.fixed_cohort, waiting=waiting))


def _pause_reason(run: Run, names: list[str]) -> str:
    assert run.attempt is not None
    at = f"round {run.attempt.ref.round}" if run.attempt.phase is Phase.UPLOADING else "the set-up"
    said = [f"; {name} said: {sentence}" for name in names if (sentence := last_said(run, name))]
    return f"{at} waits for {', '.join(names)}, longer than the spec's patience{''.join(said)}"

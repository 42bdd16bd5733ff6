"""For whom a secure run waits, since when, and when its patience ends.

A member that is away is awaited from the moment its absence is noticed, one that is connected from the moment the
phase began, once the deadline of the phase has passed. After the spec's `patience` the run pauses; what was accepted
stays, and `run resume` goes on where it was.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from aggregator.run.state import Phase, Run, Status, opened, paused
from dcfpca.spec import RunSpec


def missing(run: Run) -> tuple[str, ...]:
    """The members whose answer the present phase lacks; nobody while the sum is formed."""
    if run.attempt is None or run.status.over or run.attempt.phase is Phase.SUMMING:
        return ()
    secure, attempt = opened(run)
    done: Collection[str] = attempt.updates
    if attempt.phase is not Phase.UPLOADING:
        done = secure.adverts if attempt.phase is Phase.ADVERTISING else secure.shares
    return tuple(name for name in run.cohort if name not in done)


def since(run: Run) -> dict[str, float]:
    """From which moment each late or absent member whose answer is missing has been awaited."""
    return {name: waiting[name] for name in missing(run) if name in (waiting := opened(run)[0].waiting)}


def deadline(spec: RunSpec, run: Run) -> float | None:
    """When the next member becomes late, or the patience with one ends; None while nobody is awaited."""
    if run.status is not Status.RUNNING or not (lacking := missing(run)):
        return None
    waiting = opened(run)[0].waiting
    ends = [_patience_ends(spec, run, name, waiting[name]) for name in lacking if name in waiting]
    return min(ends + ([_due(spec, run)] if len(ends) < len(lacking) else []))


def _due(spec: RunSpec, run: Run) -> float:
    """The deadline of the phase; after a restart members have as long to reconnect."""
    return max(opened(run)[1].opened_at, run.restarted_at) + spec.round_seconds


def _patience_ends(spec: RunSpec, run: Run, name: str, at: float) -> float:
    end = at + spec.patience
    if name not in run.absent:
        return max(end, _due(spec, run))
    return max(end, run.restarted_at + spec.round_seconds) if run.restarted_at else end


def overdue(spec: RunSpec, run: Run, at: float) -> Run:
    """The deadline passed: note who is late, and pause when the patience with somebody has ended."""
    due = deadline(spec, run)
    if due is None or at < due:
        return run
    waiting = since(run)
    if given_up := [name for name, began in waiting.items() if _patience_ends(spec, run, name, began) <= at]:
        return paused(run, _pause_reason(run, given_up))
    late = {name: opened(run)[1].opened_at for name in missing(run) if name not in waiting}
    return _with_waiting(run, {**waiting, **late})


def left(run: Run, participant: str, at: float) -> Run:
    """A member went away; if its answer is missing, it is awaited from now on."""
    run = replace(run, absent=run.absent | {participant})
    if participant not in missing(run):
        return run
    return _with_waiting(run, {participant: at, **opened(run)[0].waiting})


def heard(run: Run, participant: str) -> Run:
    """A member answered."""
    waiting = opened(run)[0].waiting
    if participant not in waiting:
        return run
    return _with_waiting(run, {name: at for name, at in waiting.items() if name != participant})


def begun(run: Run, at: float) -> Run:
    """A new phase or attempt begins: of those who are missing, the absent ones are awaited from now on."""
    return _with_waiting(run, {name: at for name in missing(run) if name in run.absent})


def resumed(run: Run, at: float) -> Run:
    """An operator gives everybody who is awaited the spec's patience again."""
    return _with_waiting(run, dict.fromkeys(since(run), at))


def last_said(run: Run, participant: str) -> str:
    """The last sentence that a participant sent about the run; empty if it sent none."""
    return next((one.sentence for one in reversed(run.complaints) if one.participant == participant), "")


def _with_waiting(run: Run, waiting: dict[str, float]) -> Run:
    return replace(run, secure=replace(opened(run)[0], waiting=waiting))


def _pause_reason(run: Run, names: list[str]) -> str:
    _, attempt = opened(run)
    at = f"round {attempt.ref.round}" if attempt.phase is Phase.UPLOADING else "the set-up"
    said = [f"; {name} said: {sentence}" for name in names if (sentence := last_said(run, name))]
    return f"{at} waits for {', '.join(names)}, longer than the spec's patience{''.join(said)}"

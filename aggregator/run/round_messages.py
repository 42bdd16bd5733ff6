"""Messages of an open round: taken once, in their phase, from the cohort; anything else leaves the run as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from aggregator.run import events
from aggregator.run.effects import ACCEPTED, DUPLICATE, Accumulate, Effect, Reply
from aggregator.run.phases import candidates, progress
from aggregator.run.state import Phase, Round, Run, Status
from dcfpca.fate import Fate
from dcfpca.spec import RunSpec

Step = tuple[Run, tuple[Effect, ...]]
T = TypeVar("T")

PHASE_OF: Mapping[type[events.RoundMessage], Phase] = {
    events.KeysAdvertised: Phase.ADVERTISING,
    events.SharesSent: Phase.SHARING,
    events.BoundStated: Phase.SHARING,
    events.UpdateReceived: Phase.UPLOADING,
    events.SurvivorsAttested: Phase.ATTESTING,
    events.SharesRevealed: Phase.UNMASKING,
}
_ORDER = list(Phase)


def receive(spec: RunSpec, run: Run, event: events.RoundMessage) -> Step:
    """Take a message of the present attempt, or say why not. Whoever says something sensible is no longer silent."""
    refusal = out_of_turn(run, event.participant, event.round, event.attempt, PHASE_OF[type(event)])
    sensible = refusal is None or refusal.fate is Fate.LATE
    heard = (
        replace(run, silent=run.silent - {event.participant}) if sensible and event.participant in run.silent else run
    )
    assert run.round is not None or refusal
    if refusal:
        return heard, (_duplicate_or(refusal, run, event),)
    assert heard.round is not None
    taken = _take(heard.round, event)
    if isinstance(taken, Reply):
        return heard, (taken,)
    run, effects = progress(spec, replace(heard, round=taken))
    return run, (ACCEPTED, *_added(event), *effects)


def _added(event: events.RoundMessage) -> tuple[Effect, ...]:
    if not isinstance(event, events.UpdateReceived):
        return ()
    return (Accumulate(event.round, event.attempt, event.participant, event.sha256),)


def out_of_turn(run: Run, participant: str, round: int, attempt: int, phase: Phase) -> Reply | None:
    """Why a message for this attempt and phase cannot be taken from this participant now; None when it can."""
    if run.cohort and participant not in run.cohort:
        return Reply(Fate.REJECTED, "this participant is not in the run's cohort")
    if run.status is not Status.RUNNING or run.round is None:
        return Reply(Fate.LATE, f"the run is {run.status.value}")
    here, there = (run.round.round, run.round.attempt), (round, attempt)
    if there > here:
        return Reply(Fate.REJECTED, f"round {round} attempt {attempt} is not open yet")
    if there < here or _ORDER.index(phase) < _ORDER.index(run.round.phase):
        return Reply(Fate.LATE, f"round {round} attempt {attempt} is past {phase.value}")
    if phase is not run.round.phase:
        return Reply(Fate.REJECTED, f"round {round} attempt {attempt} is still {run.round.phase.value}")
    if participant not in candidates(run, run.round):
        return Reply(Fate.LATE, f"round {round} attempt {attempt} goes on without this participant")
    return None


def _duplicate_or(refusal: Reply, run: Run, event: events.RoundMessage) -> Reply:
    """A repeat of something accepted in this attempt stays a duplicate when the phase has moved on."""
    same_attempt = run.round is not None and (run.round.round, run.round.attempt) == (event.round, event.attempt)
    if refusal.fate is Fate.LATE and same_attempt and run.round is not None:
        taken = _take(run.round, event)
        if taken is DUPLICATE:
            return DUPLICATE
    return refusal


def _take(round: Round, event: events.RoundMessage) -> Round | Reply:
    who = event.participant
    match event:
        case events.KeysAdvertised():
            return _once(round.keys, who, event.keys) or replace(round, keys={**round.keys, who: event.keys})
        case events.SharesSent():
            shares = dict(event.shares)
            return _once(round.shares, who, shares) or replace(round, shares={**round.shares, who: shares})
        case events.BoundStated():
            return _once(round.bounds, who, event.exponent) or replace(
                round, bounds={**round.bounds, who: event.exponent}
            )
        case events.UpdateReceived():
            return _once(round.updates, who, event.sha256) or replace(
                round, updates={**round.updates, who: event.sha256}
            )
        case events.SurvivorsAttested():
            return _once(round.attestations, who, event.signature) or replace(
                round, attestations={**round.attestations, who: event.signature}
            )
        case events.SharesRevealed():
            return _once(round.reveals, who, event.reveal) or replace(
                round, reveals={**round.reveals, who: event.reveal}
            )


def _once(taken: Mapping[str, T], who: str, value: T) -> Reply | None:
    if who not in taken:
        return None
    if taken[who] == value:
        return DUPLICATE
    return Reply(Fate.REJECTED, "a different message of this kind was accepted in this attempt before")

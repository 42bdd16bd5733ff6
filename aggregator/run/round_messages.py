"""Messages of the open attempt: accepted once, in their phase, from the cohort; others leave the run unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from aggregator.run import events, fixed_cohort_rounds
from aggregator.run.effects import ACCEPTED, DUPLICATE, Accumulate, Effect, Reply
from aggregator.run.phases import candidates, progress
from aggregator.run.state import Attempt, Phase, Run, Status
from dcfpca.attempt_ref import AttemptRef
from dcfpca.message_fate import Fate
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
    """Accept a message of the open attempt, or reply why not. Its sender is no longer silent unless it is rejected."""
    if run.fixed_cohort is not None:
        return _receive_in_fixed_cohort(run, event)
    refusal = out_of_turn(run, event.participant, event.ref, PHASE_OF[type(event)])
    if event.participant in run.silent and (refusal is None or refusal.fate is Fate.LATE):
        heard = replace(run, silent=run.silent - {event.participant})
    else:
        heard = run
    if refusal or heard.attempt is None:
        assert refusal is not None
        return heard, (_duplicate_or(refusal, run, event),)
    taken = _take(heard.attempt, event)
    if isinstance(taken, Reply):
        return heard, (taken,)
    run, effects = progress(spec, replace(heard, attempt=taken))
    return run, (ACCEPTED, *_added(event), *effects)


def _receive_in_fixed_cohort(run: Run, event: events.RoundMessage) -> Step:
    if not isinstance(event, events.UpdateReceived):
        return run, (Reply(Fate.REJECTED, "this run's secure sum has no such step"),)
    refusal = out_of_turn(run, event.participant, event.ref, Phase.UPLOADING)
    if refusal is None:
        return fixed_cohort_rounds.receive_update(run, event)
    here = run.attempt
    again = here is not None and here.ref == event.ref and here.updates.get(event.participant) == event.sha256
    return run, (DUPLICATE if again and refusal.fate is Fate.LATE else refusal,)


def _added(event: events.RoundMessage) -> tuple[Effect, ...]:
    if not isinstance(event, events.UpdateReceived):
        return ()
    return (Accumulate(event.ref, event.participant, event.sha256),)


def out_of_turn(run: Run, participant: str, ref: AttemptRef, phase: Phase) -> Reply | None:
    """Why a message for this attempt and phase cannot be accepted from this participant now; None when it can."""
    if run.cohort and participant not in run.cohort:
        return Reply(Fate.REJECTED, "this participant is not in the run's cohort")
    if run.status is not Status.RUNNING or run.attempt is None:
        return Reply(Fate.LATE, f"the run is {run.status.value}")
    here = run.attempt
    if ref > here.ref:
        return Reply(Fate.REJECTED, f"{ref} is not open yet")
    if ref < here.ref or _ORDER.index(phase) < _ORDER.index(here.phase):
        return Reply(Fate.LATE, f"{ref} is past {phase.value}")
    if phase is not here.phase:
        return Reply(Fate.REJECTED, f"{ref} is still {here.phase.value}")
    if participant not in candidates(run, here):
        return Reply(Fate.LATE, f"{ref} goes on without this participant")
    return None


def _duplicate_or(refusal: Reply, run: Run, event: events.RoundMessage) -> Reply:
    """A repeat of a message accepted in this attempt stays a duplicate after the phase has closed."""
    if refusal.fate is Fate.LATE and run.attempt is not None and run.attempt.ref == event.ref:
        taken = _take(run.attempt, event)
        if taken is DUPLICATE:
            return DUPLICATE
    return refusal


def _take(attempt: Attempt, event: events.RoundMessage) -> Attempt | Reply:
    who = event.participant
    match event:
        case events.KeysAdvertised():
            taken = _once(attempt.adverts, who, event.advert)
            return taken if isinstance(taken, Reply) else replace(attempt, adverts=taken)
        case events.SharesSent():
            shares = _once(attempt.shares, who, dict(event.shares))
            return shares if isinstance(shares, Reply) else replace(attempt, shares=shares)
        case events.BoundStated():
            bounds = _once(attempt.bounds, who, event.exponent)
            return bounds if isinstance(bounds, Reply) else replace(attempt, bounds=bounds)
        case events.UpdateReceived():
            updates = _once(attempt.updates, who, event.sha256)
            return updates if isinstance(updates, Reply) else replace(attempt, updates=updates)
        case events.SurvivorsAttested():
            signatures = _once(attempt.attestations, who, event.signature)
            return signatures if isinstance(signatures, Reply) else replace(attempt, attestations=signatures)
        case events.SharesRevealed():
            reveals = _once(attempt.reveals, who, event.reveal)
            return reveals if isinstance(reveals, Reply) else replace(attempt, reveals=reveals)


def _once(taken: Mapping[str, T], who: str, value: T) -> Mapping[str, T] | Reply:
    """The messages with this one added, or the reply to a second one of the same sender."""
    if who not in taken:
        return {**taken, who: value}
    if taken[who] == value:
        return DUPLICATE
    return Reply(Fate.REJECTED, "a different message of this kind was accepted in this attempt before")

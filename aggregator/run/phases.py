"""The phases of one attempt at a round: who is awaited, when a phase is complete, what comes next.

Everything that decides a transition inside a round is here. One table says for each phase who may answer,
who has, and how many must.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from aggregator.run.effects import Discard, Effect, Sum
from aggregator.run.state import Phase, Round, Run, Status
from dcfpca.secagg.graph import COMPLETE_UP_TO
from dcfpca.spec import RunSpec

Step = tuple[Run, tuple[Effect, ...]]

# The part of the round's one deadline by which each phase of a secure round must be complete. Sharing has the
# most: the local step computes meanwhile.
_SHARE_OF_DEADLINE = {
    Phase.ADVERTISING: 0.25,
    Phase.SHARING: 0.75,
    Phase.UPLOADING: 0.9,
    Phase.ATTESTING: 0.95,
    Phase.UNMASKING: 1.0,
}


def open_round(spec: RunSpec, run: Run, round: int, attempt: int, at: float, first_attempt: int = 1) -> Run:
    """The run with a fresh attempt at this round."""
    phase = Phase.ADVERTISING if spec.aggregation == "secure" else Phase.UPLOADING
    opened = Round(round=round, attempt=attempt, first_attempt=first_attempt, phase=phase, opened_at=at)
    return replace(run, round=opened)


def deadline(spec: RunSpec, run: Run) -> float | None:
    """When the present phase must be complete; None while nothing is awaited from participants.

    Not before those who lost their connections to a restart have had the time of a round to come back.
    """
    if run.status is Status.ENROLLING:
        patience = min(spec.enrol_seconds, spec.round_seconds) if run.restarted_at else 0.0
        return max(run.created_at + spec.enrol_seconds, run.restarted_at + patience)
    if run.status is not Status.RUNNING or run.round is None or run.round.phase is Phase.SUMMING:
        return None
    due = _due(spec, run.round)
    return max(due, run.restarted_at + spec.round_seconds) if run.restarted_at else due


def _due(spec: RunSpec, round: Round) -> float:
    share = _SHARE_OF_DEADLINE[round.phase] if spec.aggregation == "secure" else 1.0
    return round.opened_at + share * spec.round_seconds


def candidates(run: Run, round: Round) -> tuple[str, ...]:
    """Who may answer in this phase."""
    match round.phase:
        case Phase.ADVERTISING:
            return run.cohort
        case Phase.SHARING:
            return round.roster
        case Phase.UPLOADING:
            return round.members if round.roster else run.cohort
        case Phase.ATTESTING | Phase.UNMASKING:
            return round.survivors
        case Phase.SUMMING:
            return ()


def answered(round: Round) -> Collection[str]:
    """Who has answered in this phase."""
    match round.phase:
        case Phase.ADVERTISING:
            return round.keys.keys()
        case Phase.SHARING:
            return round.shares.keys() & round.bounds.keys()
        case Phase.UPLOADING:
            return round.updates.keys()
        case Phase.ATTESTING:
            return round.attestations.keys()
        case Phase.UNMASKING:
            return round.reveals.keys()
        case Phase.SUMMING:
            return ()


def required(spec: RunSpec, run: Run, round: Round) -> int:
    """How many answers this phase needs at least."""
    if round.phase in (Phase.ATTESTING, Phase.UNMASKING):
        return spec.threshold_of(len(run.cohort))
    return spec.quorum_of(len(run.cohort))


def awaited(run: Run) -> tuple[str, ...]:
    """Whose answer the run waits for now: candidates that are there and have not answered."""
    if run.status is not Status.RUNNING or run.round is None:
        return ()
    done, active = answered(run.round), set(run.active)
    return tuple(name for name in candidates(run, run.round) if name in active and name not in done)


def progress(spec: RunSpec, run: Run) -> Step:
    """Move on when the present phase is complete."""
    if run.status is not Status.RUNNING or run.round is None or run.round.phase is Phase.SUMMING:
        return run, ()
    enough = len(answered(run.round)) >= required(spec, run, run.round)
    if enough and (not awaited(run) or _threshold_suffices(run.round)):
        return advance(run)
    return run, ()


def _threshold_suffices(round: Round) -> bool:
    """On the complete graph any `threshold` signatures or shares do; on a neighbour graph each one may matter.

    In a further attempt all shares are awaited: somebody may have spoiled the attempt before with wrong ones, and
    those beyond the threshold open the sum all the same, and tell which do not fit.
    """
    if round.phase is Phase.UNMASKING and round.attempt > round.first_attempt:
        return False
    return round.phase in (Phase.ATTESTING, Phase.UNMASKING) and len(round.roster) <= COMPLETE_UP_TO


def advance(run: Run) -> Step:
    """Enter the next phase with those who answered in this one."""
    assert run.round is not None
    round, done = run.round, tuple(sorted(answered(run.round)))
    match round.phase:
        case Phase.ADVERTISING:
            after = replace(round, phase=Phase.SHARING, roster=done)
        case Phase.SHARING:
            exponent = max(round.bounds[name] for name in done)
            after = replace(round, phase=Phase.UPLOADING, members=done, exponent=exponent)
        case Phase.UPLOADING:
            after = replace(round, phase=Phase.ATTESTING if round.roster else Phase.SUMMING, survivors=done)
        case Phase.ATTESTING:
            after = replace(round, phase=Phase.UNMASKING)
        case Phase.UNMASKING | Phase.SUMMING:
            after = replace(round, phase=Phase.SUMMING)
    effects = (Sum(round.round, round.attempt),) if after.phase is Phase.SUMMING else ()
    return replace(run, round=after), effects


def came_back(spec: RunSpec, run: Run, participant: str, at: float) -> Step:
    """A participant is back after a restart; once a quorum is, the usual deadlines hold again.

    An attempt whose time ran out meanwhile is opened anew, and not held against the round: nobody could answer.
    """
    run = replace(run, back=run.back | {participant})
    if run.round is None or len(run.back & set(run.cohort)) < spec.quorum_of(len(run.cohort)):
        return run, ()
    run = replace(run, restarted_at=0.0, back=frozenset())
    assert run.round is not None
    if run.status is Status.RUNNING and run.round.phase is not Phase.SUMMING and at >= _due(spec, run.round):
        return reopen_for_free(spec, run, at, "its time ran out while the aggregator was restarted")
    return run, ()


def overdue(spec: RunSpec, run: Run, at: float) -> Step:
    """The phase's time is over: go on with those who answered if they are enough, else reopen the round."""
    assert run.round is not None
    missing = awaited(run)
    run = replace(run, silent=run.silent | set(missing), restarted_at=0.0, back=frozenset())
    assert run.round is not None
    have, need = len(answered(run.round)), required(spec, run, run.round)
    if have >= need:
        return advance(run)
    who = sorted(set(candidates(run, run.round)) - set(answered(run.round)))
    return reopen(
        spec, run, at, f"{have} of the {need} needed answered while {run.round.phase}; missing {', '.join(who)}"
    )


def reopen_for_free(spec: RunSpec, run: Run, at: float, reason: str) -> Step:
    """A new attempt where the participants had no part in the failure: `max_attempts` counts from it."""
    assert run.round is not None
    return reopen(spec, replace(run, round=replace(run.round, first_attempt=run.round.attempt + 1)), at, reason)


def reopen(spec: RunSpec, run: Run, at: float, reason: str) -> Step:
    """A new attempt at the same round with fresh keys, or a pause after `max_attempts`."""
    assert run.round is not None
    round = run.round
    gone = (Discard(round.round, round.attempt),)
    if round.attempt - round.first_attempt + 1 >= spec.max_attempts:
        tries = "1 attempt" if spec.max_attempts == 1 else f"{spec.max_attempts} attempts"
        return replace(run, status=Status.PAUSED, reason=f"round {round.round} failed in {tries}: {reason}"), gone
    run = replace(run, reason=f"round {round.round} was reopened: {reason}")
    return open_round(spec, run, round.round, round.attempt + 1, at, round.first_attempt), gone

"""The phases of one attempt at a round: who is awaited, when a phase is complete, which phase follows.

Everything that decides a transition inside a round is here, except for a fixed cohort, whose rounds are in
`fixed_cohort_rounds` and its patience in `waiting`. One table says for each phase who may answer, who has, and
how many must; what the secure sum demands beyond these counts is decided by `dcfpca.secagg`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from aggregator.run import waiting
from aggregator.run.effects import Discard, Effect, Sum
from aggregator.run.secure_sum import agreement_of, close_roster, closed_roster
from aggregator.run.state import Attempt, Phase, Run, Status
from dcfpca import secagg
from dcfpca.attempt_ref import AttemptRef
from dcfpca.errors import BadMessage
from dcfpca.secagg.errors import BelowThreshold
from dcfpca.secagg.neighbour_sampling import COMPLETE_UP_TO
from dcfpca.spec import RunSpec

Step = tuple[Run, tuple[Effect, ...]]

# The fraction of the round's deadline by which each phase of a secure round must be complete. Sharing has the largest
# part because the local step computes meanwhile.
_SHARE_OF_DEADLINE = {
    Phase.ADVERTISING: 0.25,
    Phase.SHARING: 0.75,
    Phase.UPLOADING: 0.9,
    Phase.ATTESTING: 0.95,
    Phase.UNMASKING: 1.0,
}


def open_attempt(
    spec: RunSpec, run: Run, round: int, attempt: int, at: float, first_attempt: int = 1, consensus: bytes = b""
) -> Run:
    """The run with a fresh attempt at this round, on this consensus or on that of the attempt before."""
    opened = Attempt(
        ref=AttemptRef(run.run_id, round, attempt),
        first_attempt=first_attempt,
        phase=Phase.ADVERTISING if spec.aggregation == "secure" else Phase.UPLOADING,
        opened_at=at,
        consensus=consensus or (run.attempt.consensus if run.attempt else b""),
    )
    return replace(run, attempt=opened)


def deadline(spec: RunSpec, run: Run) -> float | None:
    """When the present phase must be complete; None while nothing is awaited from participants.

    After a restart it is extended so that participants have `round_seconds` to reconnect.
    """
    if run.status is Status.ENROLLING:
        patience = min(spec.enrol_seconds, spec.round_seconds) if run.restarted_at else 0.0
        return max(run.created_at + spec.enrol_seconds, run.restarted_at + patience)
    if run.fixed_cohort is not None:
        return waiting.deadline(spec, run)
    if run.status is not Status.RUNNING or run.attempt is None or run.attempt.phase is Phase.SUMMING:
        return None
    due = _due(spec, run.attempt)
    return max(due, run.restarted_at + spec.round_seconds) if run.restarted_at else due


def _due(spec: RunSpec, attempt: Attempt) -> float:
    share = _SHARE_OF_DEADLINE[attempt.phase] if spec.aggregation == "secure" else 1.0
    return attempt.opened_at + share * spec.round_seconds


def candidates(run: Run, attempt: Attempt) -> tuple[str, ...]:
    """Who may answer in this phase."""
    match attempt.phase:
        case Phase.ADVERTISING:
            return run.cohort
        case Phase.SHARING:
            return attempt.roster
        case Phase.UPLOADING:
            return attempt.members if attempt.roster else run.cohort
        case Phase.ATTESTING | Phase.UNMASKING:
            return attempt.survivors
        case Phase.SUMMING:
            return ()


def answered(attempt: Attempt) -> Collection[str]:
    """Who has answered in this phase."""
    match attempt.phase:
        case Phase.ADVERTISING:
            return attempt.adverts.keys()
        case Phase.SHARING:
            return attempt.shares.keys() & attempt.bounds.keys()
        case Phase.UPLOADING:
            return attempt.updates.keys()
        case Phase.ATTESTING:
            return attempt.attestations.keys()
        case Phase.UNMASKING:
            return attempt.reveals.keys()
        case Phase.SUMMING:
            return ()


def required(spec: RunSpec, run: Run, attempt: Attempt) -> int:
    """The smallest number of answers with which this phase may close."""
    if attempt.phase in (Phase.ATTESTING, Phase.UNMASKING):
        return spec.threshold_of(len(run.cohort))
    return spec.quorum_of(len(run.cohort))


def awaited(run: Run) -> tuple[str, ...]:
    """Whose answer the run waits for now: active candidates that have not answered, or everybody of a fixed cohort."""
    if run.status is not Status.RUNNING or run.attempt is None:
        return ()
    if run.fixed_cohort is not None:
        return waiting.missing(run)
    return tuple(_active_without_answer(run, run.attempt))


def _active_without_answer(run: Run, attempt: Attempt) -> Iterator[str]:
    """Lazily: at every message it is asked whether there is one, and most of a large cohort need not be looked at."""
    done = answered(attempt)
    for name in candidates(run, attempt):
        if name not in done and name not in run.absent and name not in run.silent:
            yield name


def progress(spec: RunSpec, run: Run) -> Step:
    """Close the present phase when it is complete.

    Answers that are numerous enough but leave some neighbourhood below its threshold do not complete a phase: somebody
    who is away may still return, and the deadline reopens the round otherwise.
    """
    if run.status is not Status.RUNNING or run.attempt is None or run.attempt.phase is Phase.SUMMING:
        return run, ()
    enough = len(answered(run.attempt)) >= required(spec, run, run.attempt)
    if not enough or (any(_active_without_answer(run, run.attempt)) and not _threshold_suffices(run.attempt)):
        return run, ()
    try:
        return advance(spec, run)
    except BadMessage:
        return run, ()


def _threshold_suffices(attempt: Attempt) -> bool:
    """Whether this phase closes at the threshold instead of waiting for everybody who is active.

    On the complete graph any `threshold` signatures or shares do. On a neighbour graph each of them may matter, and
    counting every neighbourhood at every message would cost more than the wait. In a further attempt all shares are
    awaited: wrong ones may have spoiled the attempt before, and the surplus both opens the sum and exposes them.
    """
    if attempt.phase is Phase.UNMASKING and attempt.ref.attempt > attempt.first_attempt:
        return False
    return attempt.phase in (Phase.ATTESTING, Phase.UNMASKING) and len(attempt.roster) <= COMPLETE_UP_TO


def advance(spec: RunSpec, run: Run) -> Step:
    """Enter the next phase with those who answered in this one; raises BadMessage when the secure sum forbids it."""
    assert run.attempt is not None
    attempt = run.attempt
    after = _after_secure_phase(spec, run, attempt) if spec.aggregation == "secure" else _summing(attempt)
    effects = (Sum(attempt.ref),) if after.phase is Phase.SUMMING else ()
    return replace(run, attempt=after), effects


def _summing(attempt: Attempt) -> Attempt:
    return replace(attempt, phase=Phase.SUMMING, survivors=tuple(sorted(attempt.updates)))


def _after_secure_phase(spec: RunSpec, run: Run, attempt: Attempt) -> Attempt:
    if attempt.phase is Phase.ADVERTISING:
        return replace(attempt, phase=Phase.SHARING, roster=close_roster(spec, run, attempt).members)
    closed = closed_roster(spec, run, attempt)
    match attempt.phase:
        case Phase.SHARING:
            agreement = secagg.agree(closed, attempt.shares.keys(), attempt.bounds)
            return replace(attempt, phase=Phase.UPLOADING, members=agreement.members, exponent=agreement.exponent)
        case Phase.UPLOADING:
            survivors = secagg.close_survivors(closed, agreement_of(attempt), attempt.updates.keys())
            return replace(attempt, phase=Phase.ATTESTING, survivors=survivors.members)
        case Phase.ATTESTING:
            _check_enough(closed, attempt.survivors, attempt.attestations.keys(), "signed the survivors")
            return replace(attempt, phase=Phase.UNMASKING)
        case _:
            _check_enough(closed, attempt.members, attempt.reveals.keys(), "released their shares")
            return replace(attempt, phase=Phase.SUMMING)


def _check_enough(
    closed: secagg.ClosedRoster, wanted_for: tuple[str, ...], present: Collection[str], what: str
) -> None:
    if not secagg.enough(closed, wanted_for, present):
        raise BelowThreshold(f"fewer than {closed.graph.threshold} of some participant's neighbourhood {what}")


def came_back(spec: RunSpec, run: Run, participant: str, at: float) -> Step:
    """A participant reconnected after a restart; once a quorum has, the usual deadlines apply again.

    An attempt whose deadline passed meanwhile is reopened without counting against `max_attempts`, because nobody could
    answer.
    """
    run = replace(run, back=run.back | {participant})
    if run.attempt is None or len(run.back & set(run.cohort)) < spec.quorum_of(len(run.cohort)):
        return run, ()
    run = replace(run, restarted_at=0.0, back=frozenset())
    assert run.attempt is not None
    if run.status is Status.RUNNING and run.attempt.phase is not Phase.SUMMING and at >= _due(spec, run.attempt):
        return reopen_uncounted(spec, run, at, "its time ran out while the aggregator was restarted")
    return run, ()


def overdue(spec: RunSpec, run: Run, at: float) -> Step:
    """The deadline of the phase passed: go on with those who answered if they are enough, else reopen the round."""
    assert run.attempt is not None
    missing = awaited(run)
    run = replace(run, silent=run.silent | set(missing), restarted_at=0.0, back=frozenset())
    assert run.attempt is not None
    have, need = len(answered(run.attempt)), required(spec, run, run.attempt)
    who = ", ".join(sorted(set(candidates(run, run.attempt)) - set(answered(run.attempt))))
    if have < need:
        reason = f"{have} of the {need} needed answered while {run.attempt.phase}; missing {who}"
        return reopen(spec, run, at, reason)
    try:
        return advance(spec, run)
    except BadMessage as error:
        return reopen(spec, run, at, f"{error}; missing {who}" if who else str(error))


def reopen_uncounted(spec: RunSpec, run: Run, at: float, reason: str) -> Step:
    """A new attempt that `max_attempts` does not count, for failures in which the participants had no part."""
    assert run.attempt is not None
    counted_from = replace(run.attempt, first_attempt=run.attempt.ref.attempt + 1)
    return reopen(spec, replace(run, attempt=counted_from), at, reason)


def reopen(spec: RunSpec, run: Run, at: float, reason: str) -> Step:
    """A new attempt at the same round with fresh keys, or a pause after `max_attempts`."""
    assert run.attempt is not None
    ref, first = run.attempt.ref, run.attempt.first_attempt
    gone = (Discard(ref),)
    if ref.attempt - first + 1 >= spec.max_attempts:
        tries = "1 attempt" if spec.max_attempts == 1 else f"{spec.max_attempts} attempts"
        return replace(run, status=Status.PAUSED, reason=f"round {ref.round} failed in {tries}: {reason}"), gone
    run = replace(run, reason=f"round {ref.round} was reopened: {reason}")
    return open_attempt(spec, run, ref.round, ref.attempt + 1, at, first), gone

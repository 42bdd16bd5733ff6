"""The rules of a run with a fixed cohort: set-up once, then one update of every member in each round.

No phase closes before the whole cohort has answered it. An attempt is opened anew only for a misfit: the members mask
the numbers of the round again, under larger exponents.
"""

from __future__ import annotations

from dataclasses import replace

from aggregator.run import events, waiting
from aggregator.run.effects import ACCEPTED, DUPLICATE, Accumulate, Discard, Effect, Reply, Sum
from aggregator.run.endings import why_not_finished
from aggregator.run.fixed_cohort import roster_of
from aggregator.run.records import FixedCohort
from aggregator.run.state import Attempt, Phase, Run, Status, paused
from dcfpca.attempt_ref import AttemptRef
from dcfpca.message_fate import Fate
from dcfpca.secagg.fixed_cohort.exponents import MOST_LIFTS
from dcfpca.spec import RunSpec

Step = tuple[Run, tuple[Effect, ...]]

_OTHER_KEY = "another key of this participant was accepted before; a site that lost its keys cannot rejoin the run"
_OTHER_UPDATE = "a different update was accepted in this attempt before"
_NO_SUCH_STEP = "this run's secure sum has no such step"


def receive_set_up(spec: RunSpec, run: Run, event: events.SetUpMessage) -> Step:
    """Accept a member's key or shares, once each; the last one opens the next phase."""
    fixed, attempt, who = run.fixed_cohort, run.attempt, event.participant
    if fixed is None or attempt is None or who not in run.cohort:
        return run, (Reply(Fate.REJECTED, _NO_SUCH_STEP),)
    phase = Phase.ADVERTISING if isinstance(event, events.RunKeyAdvertised) else Phase.SHARING
    if (known := _known(fixed, event)) is not None:
        return run, (DUPLICATE if known else Reply(Fate.REJECTED, _OTHER_KEY),)
    if run.status is not Status.RUNNING or attempt.phase is not phase:
        early = attempt.phase is Phase.ADVERTISING
        return run, (Reply(Fate.REJECTED if early else Fate.LATE, f"the run is {run.phase}, not {phase.value}"),)
    run = waiting.heard(replace(run, fixed_cohort=_taken(fixed, event)), who)
    return _next_phase(spec, run, event.at), (ACCEPTED,)


def _known(fixed: FixedCohort, event: events.SetUpMessage) -> bool | None:
    """Whether the same message was accepted before, or False for a different one; None if it is the first."""
    if isinstance(event, events.RunKeyAdvertised):
        before = fixed.adverts.get(event.participant)
        return None if before is None else before == event.run_key
    # Seals and signatures are deterministic, so that a repeat is the same bytes.
    shares = fixed.shares.get(event.participant)
    return None if shares is None else shares == event.shares


def _taken(fixed: FixedCohort, event: events.SetUpMessage) -> FixedCohort:
    if isinstance(event, events.RunKeyAdvertised):
        return replace(fixed, adverts={**fixed.adverts, event.participant: event.run_key})
    return replace(fixed, shares={**fixed.shares, event.participant: event.shares})


def _next_phase(spec: RunSpec, run: Run, at: float) -> Run:
    """The run in the phase that follows, once everybody has answered."""
    if waiting.missing(run) or run.attempt is None or run.fixed_cohort is None:
        return run
    if run.attempt.phase is Phase.ADVERTISING:
        closed = replace(run.fixed_cohort, roster=roster_of(spec, run, run.fixed_cohort))
        attempt = replace(run.attempt, phase=Phase.SHARING, opened_at=at)
        return waiting.begun(replace(run, fixed_cohort=closed, attempt=attempt), at)
    return waiting.begun(replace(run, attempt=replace(run.attempt, phase=Phase.UPLOADING, opened_at=at)), at)


def receive_update(run: Run, event: events.UpdateReceived) -> Step:
    """Accept a member's update of the open attempt, which shows that its set-up is complete."""
    fixed, attempt, who = run.fixed_cohort, run.attempt, event.participant
    assert fixed is not None
    assert attempt is not None
    if who in attempt.updates:
        same = (attempt.updates[who], attempt.tags.get(who, 0)) == (event.sha256, event.tag)
        return run, (DUPLICATE if same else Reply(Fate.REJECTED, _OTHER_UPDATE),)
    if not event.size:
        # A header alone was looked at, at a moment when no bytes were wanted.
        return run, (Reply(Fate.LATE, "the round was not open when this update came; it is asked for again"),)
    taken = replace(attempt, updates={**attempt.updates, who: event.sha256}, tags={**attempt.tags, who: event.tag})
    run = waiting.heard(replace(run, attempt=taken, fixed_cohort=replace(fixed, ready=fixed.ready | {who})), who)
    effects = (ACCEPTED, Accumulate(event.ref, who, event.sha256))
    if waiting.missing(run):
        return run, effects
    return replace(run, attempt=_summing(run, taken)), (*effects, Sum(event.ref))


def _summing(run: Run, attempt: Attempt) -> Attempt:
    return replace(attempt, phase=Phase.SUMMING, survivors=run.cohort)


def receive_misfit(run: Run, event: events.MisfitReported, refusal: Reply | None) -> Step:
    """Open the next attempt at the round with the misfit among its reasons. `refusal`: why it is out of turn, if so."""
    fixed, attempt = run.fixed_cohort, run.attempt
    if fixed is None or attempt is None:
        return run, (Reply(Fate.REJECTED, _NO_SUCH_STEP),)
    if event.misfit in fixed.misfits:
        return run, (DUPLICATE,)
    if refusal is not None:
        return run, (refusal,)
    if event.participant in attempt.updates:
        return run, (Reply(Fate.REJECTED, "the update of this participant was accepted, so it does fit"),)
    if fixed.lifts + len(fixed.misfits) >= MOST_LIFTS:
        return run, (Reply(Fate.REJECTED, f"the exponents of a run are raised at most {MOST_LIFTS} times"),)
    here = attempt.ref
    fixed = replace(fixed, misfits=(*fixed.misfits, event.misfit), ready=fixed.ready | {event.participant})
    again = replace(
        attempt, ref=AttemptRef(here.run_id, here.round, here.attempt + 1), opened_at=event.at, updates={}, tags={}
    )
    reason = f"round {here.round} was opened with larger exponents: the update of {event.participant} did not fit"
    run = waiting.begun(replace(run, fixed_cohort=fixed, attempt=again, reason=reason), event.at)
    return run, (ACCEPTED, Discard(here))


def next_round(run: Run, event: events.ConsensusReached) -> Run:
    """The run with the next round open, bound to the sum of this one; the messages of the set-up are dropped."""
    fixed, attempt = run.fixed_cohort, run.attempt
    assert fixed is not None
    assert attempt is not None
    opened = Attempt(
        ref=AttemptRef(run.run_id, event.ref.round + 1, 1),
        first_attempt=1,
        phase=Phase.UPLOADING,
        opened_at=event.at,
        consensus=event.consensus,
    )
    fixed = replace(
        fixed,
        adverts={},
        shares={},
        previous_sum=event.sum_digest,
        exponents=event.exponents,
        stage=event.stage,
        misfits=(),
        lifts=fixed.lifts + len(fixed.misfits),
    )
    run = replace(run, attempt=opened, fixed_cohort=fixed, reason="", restarted_at=0.0, back=frozenset())
    return waiting.begun(run, event.at)


def updates_lost(run: Run, event: events.UpdatesLost) -> Run:
    """The run that awaits the lost updates again, in the same attempt: their members send the same bytes."""
    attempt = run.attempt
    assert attempt is not None
    kept = {name: sha256 for name, sha256 in attempt.updates.items() if name not in event.participants}
    tags = {name: tag for name, tag in attempt.tags.items() if name in kept}
    again = replace(attempt, phase=Phase.UPLOADING, updates=kept, tags=tags, survivors=())
    return waiting.begun(replace(run, attempt=again, reason=f"{event.reason}; they are asked again"), event.at)


def withdrawn(spec: RunSpec, run: Run, participant: str, reasons: tuple[str, ...]) -> Run:
    """The run without a member that withdrew: it cannot go on, only be ended."""
    because = f": {'; '.join(reasons)}" if reasons else ""
    return paused(run, f"{participant} has withdrawn{because}; {_what_is_left(spec, run)}")


def revoked(spec: RunSpec, run: Run, participant: str) -> Run:
    """The run after the certificates of a member were revoked: the operator decides."""
    if run.fixed_cohort is None or run.status is not Status.RUNNING or participant not in run.cohort:
        return run
    return paused(run, f"{participant} was revoked; {_what_is_left(spec, run)}")


def _what_is_left(spec: RunSpec, run: Run) -> str:
    """What an operator can do about a run that cannot go on: before its first consensus there is nothing to keep."""
    if why_not_finished(spec, run):
        return "abort it, for it has no result yet"
    return "finish the run with the consensus it has, or abort it"

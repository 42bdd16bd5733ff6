"""The rules of a secure run's rounds: set-up once, then one update of every member in each round.

Every sum of the run is over the whole cohort: no phase closes before everybody has answered, and a member that is away
is waited for (see `waiting`). An attempt is opened anew only for a misfit: the members mask the numbers of the round
again, under larger exponents.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from aggregator.run import events, waiting
from aggregator.run.attempts import Step, open_attempt, out_of_turn
from aggregator.run.effects import ACCEPTED, DUPLICATE, Accumulate, Discard, Reply, Sum
from aggregator.run.endings import why_not_finished
from aggregator.run.secure_sum import begin, opened, roster_of
from aggregator.run.state import Phase, Run, SecureSum, Status, StoredComplaint, paused
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.fixed_point import MOST_LIFTS
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from dcfpca.wire.receipt import Fate

MOST_COMPLAINTS = 20
"""How many a run keeps; beyond that the oldest of whoever complained most is dropped."""

_OTHER_KEY = "another key of this participant was accepted before; a site that lost its keys cannot rejoin the run"
_OTHER_UPDATE = "a different update was accepted in this attempt before"
_NO_SUCH_STEP = "this run's sum has no such step"


class SecureRounds:
    """`RoundRules` of a secure run."""

    def begin(self, terms: Terms, run: Run, at: float) -> Run:
        """Begin the set-up, in the attempt that will be that at round 0."""
        return open_attempt(replace(run, secure=begin(terms)), 0, 1, at, phase=Phase.ADVERTISING)

    def deadline(self, spec: RunSpec, run: Run) -> float | None:
        """When the next member becomes late, or the patience with one ends."""
        return waiting.deadline(spec, run)

    def awaited(self, run: Run) -> tuple[str, ...]:
        """Every member that has not answered, connected or not."""
        return waiting.missing(run)

    def receive(self, spec: RunSpec, run: Run, event: events.UpdateReceived) -> Step:
        """Accept a member's update of the open attempt, which shows that its set-up is complete."""
        who, refusal = event.participant, out_of_turn(run, event.participant, event.ref)
        if refusal is not None:
            here = run.attempt
            again = here is not None and here.ref == event.ref and here.updates.get(who) == event.sha256
            return run, (DUPLICATE if again and refusal.fate is Fate.LATE else refusal,)
        secure, attempt = opened(run)
        if who in attempt.updates:
            same = (attempt.updates[who], attempt.tags.get(who, 0)) == (event.sha256, event.tag)
            return run, (DUPLICATE if same else Reply(Fate.REJECTED, _OTHER_UPDATE),)
        if not event.size:
            # A header alone was looked at, at a moment when no bytes were wanted.
            return run, (Reply(Fate.LATE, "the round was not open when this update came; it is asked for again"),)
        taken = replace(attempt, updates={**attempt.updates, who: event.sha256}, tags={**attempt.tags, who: event.tag})
        run = waiting.heard(replace(run, attempt=taken, secure=replace(secure, ready=secure.ready | {who})), who)
        effects = (ACCEPTED, Accumulate(event.ref, who, event.sha256))
        if waiting.missing(run):
            return run, effects
        return replace(run, attempt=replace(taken, phase=Phase.SUMMING, survivors=run.cohort)), (
            *effects,
            Sum(event.ref),
        )

    def left(self, spec: RunSpec, run: Run, event: events.Left) -> Step:
        """A member went away; if its answer is missing, it is awaited from now on."""
        return waiting.left(run, event.participant, event.at), ()

    def joined(self, spec: RunSpec, run: Run, event: events.Joined) -> Step:
        """A member reconnected: it is still awaited until it answers."""
        return run, ()

    def withdrawn(self, spec: RunSpec, run: Run, event: events.Responded) -> Step:
        """The run without a member that withdrew: it cannot go on, only be ended."""
        because = f": {'; '.join(event.reasons)}" if event.reasons else ""
        return paused(run, f"{event.participant} has withdrawn{because}; {_what_is_left(spec, run)}"), ()

    def next_round(self, spec: RunSpec, run: Run, event: events.ConsensusReached) -> Run:
        """The run with the next round open, bound to the sum of this one; the messages of the set-up are dropped."""
        before, _ = opened(run)
        secure = replace(
            before,
            adverts={},
            shares={},
            previous_sum=event.sum_digest,
            exponents=event.exponents,
            stage=event.stage,
            misfits=(),
            lifts=before.lifts + len(before.misfits),
        )
        run = replace(run, secure=secure, reason="", restarted_at=0.0, back=frozenset())
        return waiting.begun(open_attempt(run, event.ref.round + 1, 1, event.at), event.at)

    def sum_failed(self, spec: RunSpec, run: Run, event: events.SumFailed) -> Step:
        """Pause: the members answer a round once, so that it cannot be tried again with other updates."""
        return paused(run, event.reason), ()

    def updates_lost(self, spec: RunSpec, run: Run, event: events.UpdatesLost) -> Step:
        """Await the lost updates again in the same attempt, also in a paused run: their members send the same bytes."""
        attempt = run.attempt
        if attempt is None or attempt.ref != event.ref:
            return run, ()
        kept = {name: sha256 for name, sha256 in attempt.updates.items() if name not in event.participants}
        tags = {name: tag for name, tag in attempt.tags.items() if name in kept}
        again = replace(attempt, phase=Phase.UPLOADING, updates=kept, tags=tags, survivors=())
        return waiting.begun(replace(run, attempt=again, reason=f"{event.reason}; they are asked again"), event.at), ()

    def overdue(self, spec: RunSpec, run: Run, at: float) -> Step:
        """Note who is late, and pause when the patience with somebody has ended."""
        return waiting.overdue(spec, run, at), ()

    def resumed(self, spec: RunSpec, run: Run, at: float) -> Step:
        """Give everybody who is awaited the spec's patience again; nothing that was accepted is asked for again."""
        _, attempt = opened(run)
        return waiting.resumed(run, at), ((Sum(attempt.ref),) if attempt.phase is Phase.SUMMING else ())


def receive_set_up(spec: RunSpec, run: Run, event: events.SetUpMessage) -> Step:
    """Accept a member's key or shares, once each; the last one opens the next phase."""
    secure, attempt, who = run.secure, run.attempt, event.participant
    if secure is None or attempt is None or who not in run.cohort:
        return run, (Reply(Fate.REJECTED, _NO_SUCH_STEP),)
    phase = Phase.ADVERTISING if isinstance(event, events.RunKeyAdvertised) else Phase.SHARING
    if (known := _known(secure, event)) is not None:
        return run, (DUPLICATE if known else Reply(Fate.REJECTED, _OTHER_KEY),)
    if run.status is not Status.RUNNING or attempt.phase is not phase:
        early = attempt.phase is Phase.ADVERTISING
        return run, (Reply(Fate.REJECTED if early else Fate.LATE, f"the run is {run.phase}, not {phase.value}"),)
    run = waiting.heard(replace(run, secure=_taken(secure, event)), who)
    return _next_phase(spec, run, event.at), (ACCEPTED,)


def _known(secure: SecureSum, event: events.SetUpMessage) -> bool | None:
    """Whether the same message was accepted before, or False for a different one; None if it is the first."""
    if isinstance(event, events.RunKeyAdvertised):
        before = secure.adverts.get(event.participant)
        return None if before is None else before == event.run_key
    # Seals and signatures are deterministic, so that a repeat is the same bytes.
    shares = secure.shares.get(event.participant)
    return None if shares is None else shares == event.shares


def _taken(secure: SecureSum, event: events.SetUpMessage) -> SecureSum:
    if isinstance(event, events.RunKeyAdvertised):
        return replace(secure, adverts={**secure.adverts, event.participant: event.run_key})
    return replace(secure, shares={**secure.shares, event.participant: event.shares})


def _next_phase(spec: RunSpec, run: Run, at: float) -> Run:
    """The run in the phase that follows, once everybody has answered."""
    if waiting.missing(run):
        return run
    secure, attempt = opened(run)
    if attempt.phase is Phase.ADVERTISING:
        closed = replace(secure, roster=roster_of(spec, run, secure))
        return waiting.begun(
            replace(run, secure=closed, attempt=replace(attempt, phase=Phase.SHARING, opened_at=at)), at
        )
    return waiting.begun(replace(run, attempt=replace(attempt, phase=Phase.UPLOADING, opened_at=at)), at)


def receive_misfit(run: Run, event: events.MisfitReported) -> Step:
    """Open the next attempt at the round with the misfit among its reasons."""
    secure, attempt = run.secure, run.attempt
    if secure is None or attempt is None:
        return run, (Reply(Fate.REJECTED, _NO_SUCH_STEP),)
    if event.misfit in secure.misfits:
        return run, (DUPLICATE,)
    if (refusal := out_of_turn(run, event.participant, event.ref)) is not None:
        return run, (refusal,)
    if event.participant in attempt.updates:
        return run, (Reply(Fate.REJECTED, "the update of this participant was accepted, so it does fit"),)
    if secure.lifts + len(secure.misfits) >= MOST_LIFTS:
        return run, (Reply(Fate.REJECTED, f"the exponents of a run are raised at most {MOST_LIFTS} times"),)
    here = attempt.ref
    secure = replace(secure, misfits=(*secure.misfits, event.misfit), ready=secure.ready | {event.participant})
    again = replace(
        attempt, ref=AttemptRef(here.run_id, here.round, here.attempt + 1), opened_at=event.at, updates={}, tags={}
    )
    reason = f"round {here.round} was opened with larger exponents: the update of {event.participant} did not fit"
    # Kept for the operators: whoever reports misfits that are none takes precision from everybody.
    said, misfit = f"its update of round {here.round} does not fit", event.misfit
    report = StoredComplaint(event.participant, "", "Misfit", said, event.at, misfit.certificate, misfit.signature)
    run = replace(run, complaints=_bounded((*run.complaints, report)))
    run = waiting.begun(replace(run, secure=secure, attempt=again, reason=reason), event.at)
    return run, (ACCEPTED, Discard(here))


def receive_complaint(run: Run, event: events.Complained) -> Step:
    """Keep a complaint, whose signature was checked, for the operators. One that names a member before its author is
    set up pauses the run."""
    if event.participant not in run.cohort:
        return run, (Reply(Fate.REJECTED, "this participant is not in the run's cohort"),)
    complaint = StoredComplaint(
        event.participant,
        event.accused,
        event.error,
        event.sentence,
        event.at,
        event.certificate,
        event.signature,
    )
    if any(replace(one, at=event.at) == complaint for one in run.complaints):
        return run, (DUPLICATE,)
    run = replace(run, complaints=_bounded((*run.complaints, complaint)))
    return (_accused(run, complaint) if event.accused else run), (ACCEPTED,)


def _accused(run: Run, complaint: StoredComplaint) -> Run:
    """In the set-up nobody can go on without the accused; later the sum does not depend on its goodwill."""
    if run.secure is None or run.status is not Status.RUNNING or complaint.participant in run.secure.ready:
        return run
    return paused(run, f"{complaint.participant} accuses {complaint.accused}: {complaint.sentence}")


def _bounded(complaints: tuple[StoredComplaint, ...]) -> tuple[StoredComplaint, ...]:
    if len(complaints) <= MOST_COMPLAINTS:
        return complaints
    ((loudest, _),) = Counter(one.participant for one in complaints).most_common(1)
    oldest = next(place for place, one in enumerate(complaints) if one.participant == loudest)
    return complaints[:oldest] + complaints[oldest + 1 :]


def member_revoked(spec: RunSpec, run: Run, participant: str) -> Run:
    """The run after the certificates of a member were revoked: the operator decides. A plain run goes on."""
    if run.secure is None or run.status is not Status.RUNNING or participant not in run.cohort:
        return run
    return paused(run, f"{participant} was revoked; {_what_is_left(spec, run)}")


def _what_is_left(spec: RunSpec, run: Run) -> str:
    """What an operator can do about a run that cannot go on: before its first consensus there is nothing to keep."""
    if why_not_finished(spec, run):
        return "abort it, for it has no result yet"
    return "finish the run with the consensus it has, or abort it"

"""The rules of a secure run's rounds: set-up once, then one update of every member in each round.

Every sum of the run is over the whole cohort: no phase closes before everybody has answered, and a member that is away
is waited for (see `waiting`). An attempt is opened again only for a misfit: the members mask the numbers of the round
again, under larger exponents.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from aggregator.run import backup_recovery, events, waiting
from aggregator.run.attempts import (
    ACCEPTED,
    DUPLICATE,
    OUTSIDER,
    Accumulate,
    Assignment,
    Discard,
    Kind,
    Reply,
    Step,
    Sum,
    open_attempt,
    out_of_turn,
    round_opened,
    standby,
    why_not_finished,
)
from aggregator.run.secure_sum import begin, roster_of
from aggregator.run.state import (
    Attempt,
    Phase,
    Run,
    SecureSum,
    Status,
    StoredComplaint,
    opened,
    paused,
    with_complaint,
)
from dcfpca.errors import listed
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.fixed_point import MOST_LIFTS
from dcfpca.terms import Terms
from dcfpca.wire.receipt import Fate

_OTHER_KEY = "another key of this participant was accepted before; a site that lost its keys cannot rejoin the run"
_OTHER_UPDATE = "a different update was accepted in this attempt before"


class SecureRounds:
    """`RoundRules` of a secure run. An event is in turn where its method does not say otherwise."""

    awaited = staticmethod(waiting.missing)
    waiting = staticmethod(waiting.since)

    def __init__(self, terms: Terms) -> None:
        self.terms, self.spec = terms, terms.spec
        self.deadline = partial(waiting.deadline, terms.spec)

    def begin(self, run: Run, at: float) -> Run:
        """Begin the set-up, in the attempt that will be that at round 0."""
        return open_attempt(replace(run, secure=begin(self.terms)), 0, 1, at, phase=Phase.ADVERTISING)

    def receive(self, run: Run, event: events.UpdateReceived) -> Step:
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

    def left(self, run: Run, event: events.Left) -> Step:
        """A member went away; if its answer is missing, it is awaited from now on."""
        return waiting.left(run, event.participant, event.at), ()

    def joined(self, run: Run, event: events.Joined) -> Step:
        """A member reconnected: it is still awaited until it answers."""
        return run, ()

    def withdrawn(self, run: Run, event: events.Responded) -> Step:
        """The run without a member that withdrew: it cannot go on, only be ended."""
        because = f": {'; '.join(event.reasons)}" if event.reasons else ""
        return paused(run, f"{event.participant} has withdrawn{because}; {self._what_is_left(run)}"), ()

    def next_round(self, run: Run, event: events.ConsensusReached) -> Run:
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

    def sum_failed(self, run: Run, event: events.SumFailed) -> Step:
        """Pause: the members answer a round once, so that it cannot be tried again with other updates."""
        return paused(run, event.reason), ()

    def updates_lost(self, run: Run, event: events.UpdatesLost) -> Step:
        """Await the lost updates again in the same attempt, also in a paused run: their members send the same bytes."""
        attempt = run.attempt
        if run.status.over or attempt is None or attempt.ref != event.ref:
            return run, ()
        kept = {name: sha256 for name, sha256 in attempt.updates.items() if name not in event.participants}
        tags = {name: tag for name, tag in attempt.tags.items() if name in kept}
        again = replace(attempt, phase=Phase.UPLOADING, updates=kept, tags=tags, survivors=())
        return waiting.begun(replace(run, attempt=again, reason=f"{event.reason}; they are asked again"), event.at), ()

    def overdue(self, run: Run, at: float) -> Step:
        """Note who is late, and pause when the patience with somebody has ended."""
        return waiting.overdue(self.spec, run, at), ()

    def resumed(self, run: Run, at: float) -> Step:
        """Give everybody who is awaited the spec's patience again; nothing that was accepted is asked for again."""
        _, attempt = opened(run)
        return waiting.resumed(run, at), ((Sum(attempt.ref),) if attempt.phase is Phase.SUMMING else ())

    def overtaken(self, run: Run, here: AttemptRef, event: events.NewerAttemptShown) -> Step:
        """Pause, unless the members can repeat their answers: they give no others to a round they have answered."""
        return backup_recovery.stay_behind(run, here, event)

    def wanted(self, run: Run, attempt: Attempt, participant: str) -> list[Assignment]:
        """The one thing that is wanted of a member; who has done it stands by.

        The others' shares of the group secret go before the round until a first update shows that they were opened.
        """
        if attempt.phase is Phase.SUMMING:
            return []
        if participant not in (lacking := waiting.missing(run)):
            return [standby(attempt, f"waiting for {', '.join(lacking)}")]
        match attempt.phase:
            case Phase.ADVERTISING:
                return [Assignment(f"{run.run_id}/set-up/key", Kind.RUN_KEY_WANTED)]
            case Phase.SHARING:
                return [Assignment(f"{run.run_id}/set-up/roster", Kind.ROSTER_CLOSED)]
            case _:
                relayed = Assignment(f"{run.run_id}/set-up/shares", Kind.GROUP_SHARES_RELAYED)
                is_ready = participant in opened(run)[0].ready
                return [round_opened(attempt)] if is_ready else [relayed, round_opened(attempt)]

    def receive_step(self, run: Run, event: events.SecureStep) -> Step:
        """A message of the set-up, or a misfit, in turn or not."""
        if event.participant not in run.cohort:
            return run, (OUTSIDER,)
        if run.status.over:
            return run, (Reply(Fate.LATE, f"the run is {run.status.value}"),)
        if isinstance(event, events.MisfitReported):
            return _receive_misfit(run, event)
        return self._receive_set_up(run, event)

    def is_in_turn(self, run: Run, event: events.SecureStep) -> bool:
        """Whether the run is in the phase that this message belongs to, so that it can be checked."""
        if isinstance(event, events.MisfitReported):
            return out_of_turn(run, event.participant, event.ref) is None
        if run.attempt is None or run.status is not Status.RUNNING:
            return False
        return run.attempt.phase is _phase_of(event) and event.participant in run.cohort

    def accused(self, run: Run, complaint: StoredComplaint) -> Run:
        """Pause if the accuser is not set up: it cannot go on without the accused. Later sums need no goodwill."""
        if run.status is not Status.RUNNING or complaint.participant in opened(run)[0].ready:
            return run
        return paused(run, f"{complaint.participant} accuses {complaint.accused}: {complaint.sentence}")

    def revoked(self, run: Run, participant: str) -> Run:
        """Pause: the operator decides about a run whose member has lost its certificates."""
        if run.status is not Status.RUNNING or participant not in run.cohort:
            return run
        return paused(run, f"{participant} was revoked; {self._what_is_left(run)}")

    def why_not_resumed(self, run: Run) -> str:
        """Why a paused run cannot go on; empty if it can."""
        if gone := sorted(set(run.cohort) & run.refusals.keys()):
            have = "has" if len(gone) == 1 else "have"
            return f"{', '.join(gone)} {have} withdrawn, and every sum of this run is over its whole cohort"
        return ""

    def at_deadline(self, run: Run) -> str:
        """What the run does at its deadline."""
        late = list(waiting.since(run))
        return f"the run pauses unless it hears from {listed(late)}" if late else "who has not answered counts as late"

    def _what_is_left(self, run: Run) -> str:
        """What an operator can do about a run that cannot go on; before its first consensus nothing can be kept."""
        if why_not_finished(self.spec, run):
            return "abort it, for it has no result yet"
        return "finish the run with the consensus it has, or abort it"

    def _receive_set_up(self, run: Run, event: events.SetUpMessage) -> Step:
        """Accept a member's key or shares, once each; the last one opens the next phase."""
        (secure, attempt), phase = opened(run), _phase_of(event)
        if (known := _known(secure, event)) is not None:
            return run, (DUPLICATE if known else Reply(Fate.REJECTED, _OTHER_KEY),)
        if run.status is not Status.RUNNING or attempt.phase is not phase:
            early = attempt.phase is Phase.ADVERTISING
            return run, (Reply(Fate.REJECTED if early else Fate.LATE, f"the run is {run.phase}, not {phase.value}"),)
        run = waiting.heard(replace(run, secure=_taken(secure, event)), event.participant)
        return self._next_phase(run, event.at), (ACCEPTED,)

    def _next_phase(self, run: Run, at: float) -> Run:
        """The run in the phase that follows, once everybody has answered."""
        if waiting.missing(run):
            return run
        secure, attempt = opened(run)
        following = Phase.UPLOADING
        if attempt.phase is Phase.ADVERTISING:
            following, secure = Phase.SHARING, replace(secure, roster=roster_of(self.spec, run, secure))
        attempt = replace(attempt, phase=following, opened_at=at)
        return waiting.begun(replace(run, secure=secure, attempt=attempt), at)


def _phase_of(event: events.SetUpMessage) -> Phase:
    return Phase.ADVERTISING if isinstance(event, events.RunKeyAdvertised) else Phase.SHARING


def _known(secure: SecureSum, event: events.SetUpMessage) -> bool | None:
    """Whether the same message was accepted before, or False for a different one; None if it is the first.

    Shares that were sealed again look different and say the same: the first ones stay, and receivers judge them.
    """
    if isinstance(event, events.RunKeyAdvertised):
        before = secure.adverts.get(event.participant)
        return None if before is None else before == event.run_key
    return True if event.participant in secure.shares else None


def _taken(secure: SecureSum, event: events.SetUpMessage) -> SecureSum:
    if isinstance(event, events.RunKeyAdvertised):
        return replace(secure, adverts={**secure.adverts, event.participant: event.run_key})
    return replace(secure, shares={**secure.shares, event.participant: event.shares})


def _receive_misfit(run: Run, event: events.MisfitReported) -> Step:
    """Open the next attempt at the round with the misfit among its reasons."""
    (secure, attempt), who = opened(run), event.participant
    if event.misfit in secure.misfits:
        return run, (DUPLICATE,)
    if (refusal := out_of_turn(run, who, event.ref)) is not None:
        return run, (refusal,)
    if who in attempt.updates:
        return run, (Reply(Fate.REJECTED, "the update of this participant was accepted, so it does fit"),)
    if secure.lifts + len(secure.misfits) >= MOST_LIFTS:
        return run, (Reply(Fate.REJECTED, f"the exponents of a run are raised at most {MOST_LIFTS} times"),)
    here = attempt.ref
    secure = replace(secure, misfits=(*secure.misfits, event.misfit), ready=secure.ready | {who})
    again = replace(
        attempt, ref=AttemptRef(here.run_id, here.round, here.attempt + 1), opened_at=event.at, updates={}, tags={}
    )
    reason = f"round {here.round} was opened with larger exponents: the update of {who} did not fit"
    # Kept for the operators: a member that reports false misfits costs everybody precision.
    said, misfit = f"its update of round {here.round} does not fit", event.misfit
    report = StoredComplaint(who, "", "Misfit", said, event.at, misfit.certificate, misfit.signature)
    run = replace(with_complaint(run, report), secure=secure, attempt=again, reason=reason)
    return waiting.begun(run, event.at), (ACCEPTED, Discard(here))

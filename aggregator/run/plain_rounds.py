"""The rules of a plain run's rounds: each goes on without those who drop out, as long as a quorum has answered.

The aggregator sees every update of such a run, so nothing is given away by sums over changing members.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aggregator.run import backup_recovery, events
from aggregator.run.attempts import (
    ACCEPTED,
    DUPLICATE,
    Accumulate,
    Assignment,
    Discard,
    Reply,
    Step,
    Sum,
    is_current,
    open_attempt,
    out_of_turn,
    round_opened,
)
from aggregator.run.state import Attempt, Phase, Run, Status, StoredComplaint, ended, paused, refusals_text
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from dcfpca.wire.receipt import Fate

_OTHER_UPDATE = Reply(Fate.REJECTED, "a different message of this kind was accepted in this attempt before")


class PlainRounds:
    """`RoundRules` of a plain run; its methods do for it what those of `SecureRounds` do for a secure one."""

    def __init__(self, terms: Terms) -> None:
        self.terms, self.spec = terms, terms.spec

    def begin(self, run: Run, at: float) -> Run:
        """Open round 0."""
        return open_attempt(run, 0, 1, at)

    def deadline(self, run: Run) -> float | None:
        """The end of the round; after a restart participants have `round_seconds` to reconnect."""
        if run.status is not Status.RUNNING or run.attempt is None or run.attempt.phase is Phase.SUMMING:
            return None
        due = run.attempt.opened_at + self.spec.round_seconds
        return max(due, run.restarted_at + self.spec.round_seconds) if run.restarted_at else due

    def awaited(self, run: Run) -> tuple[str, ...]:
        """Members that are connected, not silent, and have not answered."""
        if run.status is not Status.RUNNING or run.attempt is None or run.attempt.phase is Phase.SUMMING:
            return ()
        return tuple(_active_without_update(run, run.attempt))

    def receive(self, run: Run, event: events.UpdateReceived) -> Step:
        """Accept an update, or reply why not. Unless it is rejected, its sender no longer counts as silent."""
        who, refusal = event.participant, out_of_turn(run, event.participant, event.ref)
        if who in run.silent and (refusal is None or refusal.fate is Fate.LATE):
            run = replace(run, silent=run.silent - {who})
        known = run.attempt.updates.get(who) if run.attempt is not None and run.attempt.ref == event.ref else None
        if refusal is not None:
            # A repeat of an update that was accepted stays a duplicate after the round has closed.
            again = refusal.fate is Fate.LATE and known == event.sha256
            return run, (DUPLICATE if again else refusal,)
        if known is not None:
            return run, (DUPLICATE if known == event.sha256 else _OTHER_UPDATE,)
        assert run.attempt is not None
        taken = replace(run.attempt, updates={**run.attempt.updates, who: event.sha256})
        run, effects = self._progress(replace(run, attempt=taken))
        return run, (ACCEPTED, Accumulate(event.ref, who, event.sha256), *effects)

    def left(self, run: Run, event: events.Left) -> Step:
        """A member went away: the round may be complete without it."""
        return self._progress(replace(run, absent=run.absent | {event.participant}))

    def joined(self, run: Run, event: events.Joined) -> Step:
        """A member reconnected. After a restart, once a quorum has, the usual deadlines apply again.

        An attempt whose deadline passed meanwhile is reopened without counting against `max_attempts`, because nobody
        could answer.
        """
        if not run.restarted_at:
            return run, ()
        run = replace(run, back=run.back | {event.participant})
        if run.attempt is None or len(run.back & set(run.cohort)) < self.spec.quorum_of(len(run.cohort)):
            return run, ()
        run = replace(run, restarted_at=0.0, back=frozenset())
        due = self.deadline(run)
        if due is not None and event.at >= due:
            return _reopen_uncounted(self.spec, run, event.at, "its time ran out while the aggregator was restarted")
        return run, ()

    def withdrawn(self, run: Run, event: events.Responded) -> Step:
        """The run without a member that withdrew; it fails when too few are left."""
        left = [name for name in run.cohort if name not in run.refusals]
        if len(left) < self.spec.quorum_of(len(run.cohort)):
            gone = (Discard(run.attempt.ref),) if run.attempt else ()
            reason = f"too few are left for a quorum{refusals_text(self.spec, run)}"
            return ended(run, Status.FAILED, reason, event.at), gone
        return self._progress(run)

    def next_round(self, run: Run, event: events.ConsensusReached) -> Run:
        """The run with the next round open."""
        return open_attempt(replace(run, reason=""), event.ref.round + 1, 1, event.at)

    def sum_failed(self, run: Run, event: events.SumFailed) -> Step:
        """Try the round again."""
        return _reopen(self.spec, run, event.at, event.reason)

    def updates_lost(self, run: Run, event: events.UpdatesLost) -> Step:
        """Try the round again; the participants had no part in the loss."""
        if not is_current(run, event.ref):
            return run, ()
        return _reopen_uncounted(self.spec, run, event.at, event.reason)

    def overdue(self, run: Run, at: float) -> Step:
        """The deadline passed: go on with those who answered if they are enough, else reopen the round."""
        run = replace(run, silent=run.silent | set(self.awaited(run)), restarted_at=0.0, back=frozenset())
        assert run.attempt is not None
        have, need = len(run.attempt.updates), self.spec.quorum_of(len(run.cohort))
        if have >= need:
            return _summing(run, run.attempt)
        missing = ", ".join(sorted(set(run.cohort) - set(run.attempt.updates)))
        reason = f"{have} of the {need} needed answered while {run.attempt.phase}; missing {missing}"
        return _reopen(self.spec, run, at, reason)

    def resumed(self, run: Run, at: float) -> Step:
        """Open the round again, with `max_attempts` counted from here."""
        assert run.attempt is not None
        again = run.attempt.ref.attempt + 1
        return open_attempt(run, run.attempt.ref.round, again, at, first_attempt=again), ()

    def overtaken(self, run: Run, here: AttemptRef, event: events.NewerAttemptShown) -> Step:
        """Go on beyond what the sites have seen: they may answer any round that they have not answered."""
        return backup_recovery.move_beyond(self.spec, run, here, event)

    def wanted(self, run: Run, attempt: Attempt, participant: str) -> list[Assignment]:
        """The round, until it closes; a site whose update was acknowledged does not answer a repeat."""
        return [] if attempt.phase is Phase.SUMMING else [round_opened(attempt)]

    def receive_step(self, run: Run, event: events.SecureStep) -> Step:
        """Reject what belongs to a secure sum."""
        return run, (Reply(Fate.REJECTED, "this run's sum has no such step"),)

    def is_in_turn(self, run: Run, event: events.SecureStep) -> bool:
        """Never: there is nothing to check such a message against."""
        return False

    def accused(self, run: Run, complaint: StoredComplaint) -> Run:
        """Go on: the round does not need the accused."""
        return run

    def revoked(self, run: Run, participant: str) -> Run:
        """Go on: the member can no longer connect, and counts as absent."""
        return run

    def why_not_resumed(self, run: Run) -> str:
        """Nothing: a plain run never pauses for a withdrawal, it goes on without or fails."""
        return ""

    def waiting(self, run: Run) -> dict[str, float]:
        """Nobody in particular: at its deadline the round goes on without those who are late."""
        return {}

    def at_deadline(self, run: Run) -> str:
        """What the run does at its deadline."""
        return "the round goes on without those who have not answered, or is tried again"

    def _progress(self, run: Run) -> Step:
        """Sum the round once a quorum has answered and nobody else is about to."""
        if run.status is not Status.RUNNING or run.attempt is None or run.attempt.phase is Phase.SUMMING:
            return run, ()
        enough = len(run.attempt.updates) >= self.spec.quorum_of(len(run.cohort))
        if not enough or any(_active_without_update(run, run.attempt)):
            return run, ()
        return _summing(run, run.attempt)


def _active_without_update(run: Run, attempt: Attempt) -> Iterator[str]:
    """Lazily: at every message it is asked whether there is one, and most of a large cohort need not be looked at."""
    for name in run.cohort:
        if name not in attempt.updates and name not in run.absent and name not in run.silent:
            yield name


def _summing(run: Run, attempt: Attempt) -> Step:
    summing = replace(attempt, phase=Phase.SUMMING, survivors=tuple(sorted(attempt.updates)))
    return replace(run, attempt=summing), (Sum(attempt.ref),)


def _reopen_uncounted(spec: RunSpec, run: Run, at: float, reason: str) -> Step:
    """A new attempt that `max_attempts` does not count, for failures in which the participants had no part."""
    assert run.attempt is not None
    counted_from = replace(run.attempt, first_attempt=run.attempt.ref.attempt + 1)
    return _reopen(spec, replace(run, attempt=counted_from), at, reason)


def _reopen(spec: RunSpec, run: Run, at: float, reason: str) -> Step:
    """A new attempt at the same round, or a pause after `max_attempts`."""
    assert run.attempt is not None
    ref, first = run.attempt.ref, run.attempt.first_attempt
    gone = (Discard(ref),)
    if ref.attempt - first + 1 >= spec.max_attempts:
        tries = "1 attempt" if spec.max_attempts == 1 else f"{spec.max_attempts} attempts"
        return paused(run, f"round {ref.round} failed in {tries}: {reason}"), gone
    run = replace(run, reason=f"round {ref.round} was reopened: {reason}")
    return open_attempt(run, ref.round, ref.attempt + 1, at, first_attempt=first), gone

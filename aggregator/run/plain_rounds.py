"""The rules of a plain run's rounds: each goes on without those who drop out, as long as a quorum has answered.

The aggregator sees every update of such a run, so nothing is given away by sums over changing members.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aggregator.run import events
from aggregator.run.attempts import Step, is_current, open_attempt, out_of_turn
from aggregator.run.effects import ACCEPTED, DUPLICATE, Accumulate, Discard, Reply, Sum
from aggregator.run.state import Attempt, Phase, Run, Status, ended, paused, refusals_told
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from dcfpca.wire.receipt import Fate

_OTHER_UPDATE = Reply(Fate.REJECTED, "a different message of this kind was accepted in this attempt before")


class PlainRounds:
    """`RoundRules` of a plain run."""

    def begin(self, terms: Terms, run: Run, at: float) -> Run:
        """Open round 0."""
        return open_attempt(run, 0, 1, at)

    def deadline(self, spec: RunSpec, run: Run) -> float | None:
        """The end of the round; after a restart participants have `round_seconds` to reconnect."""
        if run.status is not Status.RUNNING or run.attempt is None or run.attempt.phase is Phase.SUMMING:
            return None
        due = run.attempt.opened_at + spec.round_seconds
        return max(due, run.restarted_at + spec.round_seconds) if run.restarted_at else due

    def awaited(self, run: Run) -> tuple[str, ...]:
        """Members that are connected, not silent, and have not answered."""
        if run.status is not Status.RUNNING or run.attempt is None or run.attempt.phase is Phase.SUMMING:
            return ()
        return tuple(_active_without_update(run, run.attempt))

    def receive(self, spec: RunSpec, run: Run, event: events.UpdateReceived) -> Step:
        """Accept an update, or reply why not. Its sender is no longer silent unless it is rejected."""
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
        run, effects = self._progress(spec, replace(run, attempt=taken))
        return run, (ACCEPTED, Accumulate(event.ref, who, event.sha256), *effects)

    def left(self, spec: RunSpec, run: Run, event: events.Left) -> Step:
        """A member went away: the round may be complete without it."""
        return self._progress(spec, replace(run, absent=run.absent | {event.participant}))

    def joined(self, spec: RunSpec, run: Run, event: events.Joined) -> Step:
        """A member reconnected. After a restart, once a quorum has, the usual deadlines apply again.

        An attempt whose deadline passed meanwhile is reopened without counting against `max_attempts`, because nobody
        could answer.
        """
        if not run.restarted_at:
            return run, ()
        run = replace(run, back=run.back | {event.participant})
        if run.attempt is None or len(run.back & set(run.cohort)) < spec.quorum_of(len(run.cohort)):
            return run, ()
        run = replace(run, restarted_at=0.0, back=frozenset())
        due = self.deadline(spec, run)
        if due is not None and event.at >= due:
            return _reopen_uncounted(spec, run, event.at, "its time ran out while the aggregator was restarted")
        return run, ()

    def withdrawn(self, spec: RunSpec, run: Run, event: events.Responded) -> Step:
        """The run without a member that withdrew; it fails when too few are left."""
        left = [name for name in run.cohort if name not in run.refusals]
        if len(left) < spec.quorum_of(len(run.cohort)):
            gone = (Discard(run.attempt.ref),) if run.attempt else ()
            reason = f"too few are left for a quorum{refusals_told(spec, run)}"
            return ended(run, Status.FAILED, reason, event.at), gone
        return self._progress(spec, run)

    def next_round(self, spec: RunSpec, run: Run, event: events.ConsensusReached) -> Run:
        """The run with the next round open."""
        return open_attempt(replace(run, reason=""), event.ref.round + 1, 1, event.at)

    def sum_failed(self, spec: RunSpec, run: Run, event: events.SumFailed) -> Step:
        """Try the round again."""
        return _reopen(spec, run, event.at, event.reason)

    def updates_lost(self, spec: RunSpec, run: Run, event: events.UpdatesLost) -> Step:
        """Try the round again; the participants had no part in the loss."""
        if not is_current(run, event.ref):
            return run, ()
        return _reopen_uncounted(spec, run, event.at, event.reason)

    def overdue(self, spec: RunSpec, run: Run, at: float) -> Step:
        """The deadline passed: go on with those who answered if they are enough, else reopen the round."""
        run = replace(run, silent=run.silent | set(self.awaited(run)), restarted_at=0.0, back=frozenset())
        assert run.attempt is not None
        have, need = len(run.attempt.updates), spec.quorum_of(len(run.cohort))
        if have >= need:
            return _summing(run, run.attempt)
        missing = ", ".join(sorted(set(run.cohort) - set(run.attempt.updates)))
        reason = f"{have} of the {need} needed answered while {run.attempt.phase}; missing {missing}"
        return _reopen(spec, run, at, reason)

    def resumed(self, spec: RunSpec, run: Run, at: float) -> Step:
        """Open the round again, with `max_attempts` counted from here."""
        assert run.attempt is not None
        again = run.attempt.ref.attempt + 1
        return open_attempt(run, run.attempt.ref.round, again, at, first_attempt=again), ()

    def _progress(self, spec: RunSpec, run: Run) -> Step:
        """Sum the round once a quorum has answered and nobody else is about to."""
        if run.status is not Status.RUNNING or run.attempt is None or run.attempt.phase is Phase.SUMMING:
            return run, ()
        enough = len(run.attempt.updates) >= spec.quorum_of(len(run.cohort))
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

"""The attempt that is open at a site, and the local step that answers it. Pure.

One local step runs at a time. Its update is kept, because a later attempt at the same round sends it again.
"""

from __future__ import annotations

from dcfpca.attempt_ref import AttemptRef
from dcfpca.errors import BadMessage
from dcfpca.spec import RunSpec
from participant.session.actions import Action, Compute, Reaction
from participant.session.attempt import Attempt, bytes_of
from participant.session.events import Acknowledged, Answered, Computed, Opened, SecureStep
from participant.session.fixed_cohort import FixedCohortAttempt, FixedCohortRun


class OpenRound:
    """`attempt` is the latest that was opened, `computed` the last local step; both are None before the first."""

    def __init__(self) -> None:
        self.attempt: Attempt | FixedCohortAttempt | None = None
        self.computed: Computed | None = None
        self._computing = False

    @property
    def ref(self) -> AttemptRef | None:
        """Which attempt is open."""
        return self.attempt.ref if self.attempt else None

    def close(self) -> None:
        """Nothing is open any more."""
        self.attempt = None

    def stop_computing(self) -> None:
        """No local step is running: it failed, or the process that ran it is gone."""
        self._computing = False

    def begin(self, attempt: Attempt | FixedCohortAttempt) -> tuple[Action, ...]:
        """Open this attempt. In a run with dropout recovery, an update computed in an earlier attempt is used again."""
        self.attempt = attempt
        if isinstance(attempt, Attempt) and self.computed and _answers(self.computed, attempt.opened):
            attempt.vector = self.computed.vector
        return self.due()

    def due(self) -> tuple[Action, ...]:
        """What the open attempt waits for from this site."""
        return (*self.compute(), *self.attempt.start()) if self.attempt else ()

    def announced_again(self, event: Opened) -> tuple[Action, ...]:
        """What is due when the open attempt is announced again.

        A fixed cohort's round is announced only to members whose answer is missing. One that was acknowledged was lost
        with the aggregator that took it, and its successor on another machine waits for it: the same bytes go out. An
        announcement that differs from the one that was answered gets nothing.
        """
        if isinstance(self.attempt, FixedCohortAttempt) and self.attempt.repeats(event):
            self.attempt.done.clear()
        return self.due()

    def compute(self) -> tuple[Action, ...]:
        """The local step of the open round, unless it is done or a local step is still running."""
        if self.attempt is None or self.attempt.is_answered or self._computing:
            return ()
        self._computing = True
        return (Compute(self.attempt.ref.round, self.attempt.opened.consensus),)

    def take_computed(self, event: Computed) -> Reaction:
        """Take the local step of a plain run or one with dropout recovery."""
        self._computing = False
        self.computed = event
        attempt = self.attempt
        if not isinstance(attempt, Attempt):
            return Reaction()
        if not _answers(event, attempt.opened):
            return Reaction(self.compute())
        return Reaction(attempt.computed(event.vector))

    def take_answer(self, event: Answered, fixed: FixedCohortRun | None) -> Reaction:
        """Take the masked update of a fixed cohort, and pin it if its attempt is still the one that is open."""
        self._computing = False
        self.computed = event.computed
        attempt = self.attempt
        if not isinstance(attempt, FixedCohortAttempt) or fixed is None:
            return Reaction()
        if attempt.ref != event.answer.ref or attempt.is_answered:
            return Reaction(self.compute())
        fixed.adopt(event.answer)
        attempt.answer = event.answer
        return Reaction(attempt.start(), save=True)

    def hear(self, event: SecureStep) -> Reaction:
        """Take a step of the sum with dropout recovery; BadMessage when its attempt was not opened to this site."""
        attempt = self.attempt
        if not isinstance(attempt, Attempt) or event.ref < attempt.ref:
            return Reaction()
        if event.ref > attempt.ref:
            raise BadMessage(f"{event.ref} is under way, but was never opened to this site; it is ignored")
        new = type(event) not in attempt.heard
        return Reaction(attempt.hear(event), save=new)

    def acknowledge(self, event: Acknowledged) -> None:
        """Note that a message of the open attempt need not be sent again."""
        if self.attempt is not None and self.attempt.ref == event.ref:
            self.attempt.done.add(event.kind)

    def opened_for(self, round: int) -> tuple[str, ...]:
        """The survivors for whom this site revealed shares in this round; empty when it did not."""
        attempt = self.attempt
        if not isinstance(attempt, Attempt) or attempt.side is None or attempt.ref.round != round:
            return ()
        return attempt.side.opened.members if attempt.side.opened else ()

    def update_bytes(self, ref: AttemptRef) -> memoryview:
        """The bytes of the update of this attempt; raises BadMessage when the attempt is no longer open."""
        attempt = self.attempt
        if attempt is None or attempt.ref != ref:
            raise BadMessage(f"{ref} is not open any more")
        return attempt.update_bytes() if isinstance(attempt, Attempt) else bytes_of(attempt.masked().values)

    def update_seal(self, ref: AttemptRef) -> tuple[int, bytes]:
        """Tag and context that go with the update of a fixed cohort; zero and empty elsewhere."""
        attempt = self.attempt
        if not isinstance(attempt, FixedCohortAttempt) or attempt.ref != ref:
            return 0, b""
        masked = attempt.masked()
        return masked.tag, masked.context


def check_same_run(spec: RunSpec, cohort: tuple[str, ...], before: Opened | None, event: Opened) -> None:
    """Raise BadMessage when a cohort gained members, that of a secure run lost some, a round has a second, different
    consensus, or the round is beyond the last. `cohort` and `before` are what was announced earlier in the run."""
    if event.ref.round > spec.last_round:
        raise BadMessage(f"round {event.ref.round} is beyond the last of the spec, {spec.last_round}")
    gone, added = sorted(set(cohort) - set(event.cohort)), sorted(set(event.cohort) - set(cohort))
    if spec.aggregation == "secure" and gone:
        raise BadMessage(f"the cohort of a secure run does not shrink: {', '.join(gone)} was left out")
    if cohort and added:
        raise BadMessage(f"the cohort grew after the run began: {', '.join(added)}")
    if before and before.ref.round == event.ref.round and before.consensus.sha256 != event.consensus.sha256:
        raise BadMessage(f"a second, different consensus was announced for round {event.ref.round}")


def _answers(computed: Computed, opened: Opened) -> bool:
    """Whether this local step was computed for the round and the consensus of this attempt."""
    return (computed.round, computed.consensus_sha256) == (opened.ref.round, opened.consensus.sha256)

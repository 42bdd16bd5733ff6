"""The attempt that is open at a site, and the local step that answers it. Pure.

One local step runs at a time. Its update is kept, because a later attempt at the same round sends it again.
"""

from __future__ import annotations

from dcfpca.errors import BadMessage
from dcfpca.run_references import AttemptRef
from participant.session.actions import Action, Compute, Reaction
from participant.session.events import Acknowledged, Answered, Computed, Opened
from participant.session.plain_run import PlainAttempt
from participant.session.secure_run import SecureAttempt, SecureRun


class OpenRound:
    """`attempt` is the latest that was opened, `computed` the last local step; both are None before the first."""

    def __init__(self) -> None:
        self.attempt: SecureAttempt | PlainAttempt | None = None
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

    def begin(self, attempt: SecureAttempt | PlainAttempt) -> tuple[Action, ...]:
        """Open this attempt. A plain one uses an update again that was computed in an earlier attempt at its round."""
        self.attempt = attempt
        if self.computed is not None:
            attempt.take(self.computed)
        return self.due()

    def due(self) -> tuple[Action, ...]:
        """What the open attempt waits for from this site."""
        return (*self.compute(), *self.attempt.start()) if self.attempt else ()

    def announced_again(self, event: Opened) -> tuple[Action, ...]:
        """What is due when the open attempt is announced again."""
        if self.attempt is not None:
            self.attempt.announced_again(event)
        return self.due()

    def compute(self) -> tuple[Action, ...]:
        """The local step of the open round, unless it is done or a local step is still running."""
        if self.attempt is None or self.attempt.is_answered or self._computing:
            return ()
        self._computing = True
        return (Compute(self.attempt.ref.round, self.attempt.opened.consensus),)

    def take_computed(self, event: Computed) -> Reaction:
        """Take the local step of a plain run, or after a restart the one that was saved."""
        self._computing = False
        self.computed = event
        if self.attempt is None:
            return Reaction()
        return Reaction(self.attempt.start() if self.attempt.take(event) else self.compute())

    def take_answer(self, event: Answered, run: SecureRun) -> Reaction:
        """Take the masked update of a secure run, and pin it if its attempt is still the one that is open."""
        self._computing = False
        self.computed = event.computed
        attempt = self.attempt
        if not isinstance(attempt, SecureAttempt):
            return Reaction()
        if attempt.ref != event.answer.ref or attempt.is_answered:
            return Reaction(self.compute())
        run.adopt(event.answer)
        attempt.answer = event.answer
        return Reaction(attempt.start(), save=True)

    def acknowledge(self, event: Acknowledged) -> None:
        """Note that a message of the open attempt need not be sent again."""
        if self.attempt is not None and self.attempt.ref == event.ref:
            self.attempt.done.add(event.kind)

    def update(self, ref: AttemptRef) -> SecureAttempt | PlainAttempt:
        """The attempt whose update is to be sent; raises BadMessage when it is no longer open."""
        if self.attempt is None or self.attempt.ref != ref:
            raise BadMessage(f"{ref} is not open any more")
        return self.attempt

"""Runs at any point of their life, for the tests of the rules: spec, events and steps with little to write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aggregator.run import events
from aggregator.run.attempts import Effect, Reply
from aggregator.run.rules import rules_of, step
from aggregator.run.state import Run
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.terms import Terms
from dcfpca.wire.receipt import Fate

NAMES = ("ann", "bob", "cem", "dag")


def spec_of(**keys: Any) -> RunSpec:
    """A plain run of ten rounds over four named participants, unless told otherwise."""
    return parse_spec(
        {"rows": 8, "rank": 2, "rounds": 10, "aggregation": "plain", "participants": NAMES, "round_seconds": 100} | keys
    )


class Machine:
    """A run with its spec; every event is applied and what came of it kept."""

    def __init__(self, spec: RunSpec | None = None) -> None:
        self.spec = spec or spec_of()
        self.terms = Terms.of(self.spec)
        self.rules = rules_of(self.terms)
        self.run = Run(run_id="r1", created_at=0.0)
        self.at = 0.0
        self.effects: tuple[Effect, ...] = ()

    def tell(self, kind: type[Any], **fields: Any) -> Machine:
        """Apply an event of this kind; `round` and `attempt` make its `ref`."""
        if "round" in fields:
            fields["ref"] = AttemptRef("r1", fields.pop("round"), fields.pop("attempt"))
        self.run, self.effects = step(self.rules, self.run, kind(at=self.at, **fields))
        return self

    def say(self, kind: type[Any], who: str, **fields: Any) -> Reply:
        """A message for the open attempt, unless round and attempt are given; callables make a field of the sender."""
        place = self._place() if issubclass(kind, events.AttemptMessage) else {}
        made = {name: value(who) if callable(value) else value for name, value in fields.items()}
        self.tell(kind, participant=who, **place | made)
        return next(effect for effect in self.effects if isinstance(effect, Reply))

    def _place(self) -> dict[str, int]:
        ref = self.run.attempt.ref if self.run.attempt else AttemptRef("r1", 0, 1)
        return {"round": ref.round, "attempt": ref.attempt}

    def enrol(self, *names: str) -> Machine:
        for name in names:
            self.say(events.Responded, name, accept=True)
        return self

    def all_say(self, kind: type[Any], names: Iterable[str] = NAMES, **fields: Any) -> Machine:
        for name in names:
            assert self.say(kind, name, **fields).fate is Fate.ACCEPTED, (kind, name)
        return self

    def upload(self, *names: str) -> Machine:
        return self.all_say(events.UpdateReceived, names or NAMES, sha256=b"d" * 32, size=8)

    def reach(self, outcome: str = "") -> Machine:
        """The sum of the open attempt is formed."""
        return self.tell(events.ConsensusReached, **self._place(), outcome=outcome)

    def overdue(self) -> Machine:
        """The deadline of the present phase passes."""
        assert self.run.attempt is not None
        return self.tell(events.DeadlinePassed, **self._place(), phase=self.run.attempt.phase.value)

    @property
    def place(self) -> tuple[str, int, int, str]:
        """Status, round, attempt, phase."""
        here = self.run.attempt
        return (
            self.run.status.value,
            here.ref.round if here else -1,
            here.ref.attempt if here else 0,
            here.phase.value if here else "",
        )

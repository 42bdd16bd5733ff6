"""The aggregator's rules of a plain run with a disk that survives and a memory that does not. No clock, no network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from aggregator.rpc.assignment_messages import outgoing, stage_facts
from aggregator.run import events
from aggregator.run.attempts import Discard, RenumberConsensus, Reply, Sum, ticket_of
from aggregator.run.backup_recovery import ShownTicket, newer_attempt, renumbered
from aggregator.run.rules import assignments, rules_of, step
from aggregator.run.state import Phase, Run, Status
from aggregator.store.codec import dump_event, load_event
from aggregator.sums import EncodedConsensus, UnusableSum, encoded_consensus, sums_of
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage, Total
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec
from dcfpca.terms import Terms
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.wire.receipt import Fate
from participant.session import events as site_events

START = Run(run_id="r1", created_at=0.0, seal=bytes(32))


@dataclass
class Summed:
    """One consensus that was reached, and from whose updates."""

    round: int
    attempt: int
    survivors: tuple[str, ...]


@dataclass(frozen=True)
class Backup:
    """A copy of the disk."""

    journal: tuple[bytes, ...]
    updates: Mapping[tuple[AttemptRef, str], bytes]
    consensus: Consensus
    reached: tuple[Summed, ...]


@dataclass
class SimulatedAggregator:
    """`journal`, `consensus` and `updates` are its disk, written together; everything else is lost in a crash."""

    spec: RunSpec
    journal: list[bytes] = field(default_factory=list)
    updates: dict[tuple[AttemptRef, str], bytes] = field(default_factory=dict)
    reached: list[Summed] = field(default_factory=list)
    run: Run = START
    to_sum: Sum | None = None
    clock: float = 1.0

    def __post_init__(self) -> None:
        self.spec_bytes = self.spec.canonical()
        self.terms = Terms.of(self.spec)
        self.rules, self.sums = rules_of(self.terms), sums_of(self.terms)
        self.method = self.terms.method
        self.consensus = self.method.begin()
        self.run = replace(self.run, spec_sha256=self.spec.digest())

    def encoded(self) -> EncodedConsensus:
        """The consensus as it is announced."""
        return encoded_consensus(self.consensus)

    def tell(self, event: events.Event, update: bytes = b"") -> Reply | None:
        """One event, durable with all it leads to before anybody is answered."""
        after, effects = step(self.rules, self.run, event)
        if after is not self.run:
            self.journal.append(dump_event(event))
        accepted = any(isinstance(effect, Reply) and effect.fate is Fate.ACCEPTED for effect in effects)
        if accepted and isinstance(event, events.UpdateReceived):
            self.updates[event.ref, event.participant] = update
        self.run = after
        for effect in effects:
            match effect:
                case Sum():
                    self.to_sum = effect
                case RenumberConsensus():
                    self.consensus = renumbered(self.consensus, effect)
                case Discard(ref):
                    self.updates = {key: data for key, data in self.updates.items() if key[0] > ref}
        return next((effect for effect in effects if isinstance(effect, Reply)), None)

    def receive(self, event: events.UpdateReceived, update: bytes = b"", ticket: bytes = b"") -> Reply:
        """A message of a participant, checked as at the service's door."""
        here = self.run.attempt
        if ticket and here and ticket != ticket_of(self.run, here, self.encoded().header.sha256):
            return Reply(Fate.LATE, "this attempt was opened again")
        reply = self.tell(event, update)
        assert reply is not None
        return reply

    def sum(self, vectors: dict[tuple[str, int, bytes], FloatArray]) -> None:
        """Form the consensus; it must be what the survivors' own vectors, added in the open, lead to."""
        effect, here = self.to_sum, self.run.attempt
        self.to_sum = None
        if effect is None or here is None or self.run.status is not Status.RUNNING or here.phase is not Phase.SUMMING:
            return
        if here.ref != effect.ref:
            return
        running = self.sums.begin(self.consensus.stage)
        for name in here.survivors:
            running.add(0, self.updates[here.ref, name])
        try:
            after = self.sums.open(self.run, self.encoded(), running.total()).consensus
        except UnusableSum as error:
            self.tell(events.SumFailed(at=self.clock, ref=here.ref, reason=str(error)))
            return
        begun_with = self.encoded().header.sha256
        self._check_sum(after, [vectors[name, here.ref.round, begun_with] for name in here.survivors])
        self.reached.append(Summed(here.ref.round, here.ref.attempt, here.survivors))
        outcome = after.outcome.value if after.outcome else ""
        self.tell(events.ConsensusReached(at=self.clock, ref=here.ref, outcome=outcome))
        self.consensus = after

    def _check_sum(self, after: Consensus, vectors: list[FloatArray]) -> None:
        layout = self.method.stage(self.consensus.stage).up
        message = TensorMessage.unflatten(layout, np.sum(vectors, axis=0))
        wanted = self.method.advance(self.consensus, Total(message, len(vectors)))
        assert np.allclose(after.broadcast.flat(), wanted.broadcast.flat(), rtol=1e-9, atol=1e-9)

    def replayed(self) -> Run:
        """The run as its journal tells it."""
        run = replace(START, spec_sha256=self.spec.digest())
        for body in self.journal:
            run, _ = step(self.rules, run, load_event(body, "r1"))
        return run

    def crash(self) -> None:
        """Lose the memory, and come back from the disk."""
        assert self.replayed() == self.run
        self.run = self.replayed()
        here = self.run.attempt
        summing = here is not None and self.run.phase == "summing"
        self.to_sum = Sum(here.ref) if here is not None and summing else None

    def back_up(self) -> Backup:
        """Copy the disk."""
        return Backup(tuple(self.journal), dict(self.updates), self.consensus, tuple(self.reached))

    def restore(self, backup: Backup) -> None:
        """Come back from a copy that was made some time ago."""
        self.journal, self.updates, self.reached = list(backup.journal), dict(backup.updates), list(backup.reached)
        self.consensus = backup.consensus
        self.run = self.replayed()
        self.clock += 1.0
        self.crash()

    def greet(self, name: str, opened: site_events.Opened | None) -> None:
        """A participant connects and shows the last attempt that was opened to it."""
        if opened is None:
            return
        ref = AttemptRef("r1", opened.ref.round, opened.ref.attempt)
        seen = ShownTicket(ref, opened.consensus.sha256, opened.ticket)
        news = newer_attempt(self.run, self.encoded().header.sha256, name, seen, self.clock)
        if news is not None:
            self.tell(news)

    def wanted_of(self, name: str) -> list[pb.Assignment]:
        """What a stream that is opened now is sent."""
        facts = stage_facts(self.sums, self.spec_bytes, self.run, self.encoded())
        wanted = assignments(self.rules, self.run, name)
        return [
            pb.Assignment.FromString(body) for body in (outgoing(facts, self.run, name, one)[0]() for one in wanted)
        ]

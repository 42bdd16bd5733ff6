"""The aggregator's rules with a disk that survives and a memory that does not: no clock, no network, no threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from aggregator.assignment_facts import FactsOfStage
from aggregator.run import events, secure_sum_checks
from aggregator.run.assignments import assignments
from aggregator.run.backup_recovery import Seen, news_in, recast, ticket_of
from aggregator.run.effects import Discard, Recast, Reply, Sum
from aggregator.run.round_messages import PHASE_OF, out_of_turn
from aggregator.run.rules import step
from aggregator.run.state import Phase, Run, Status
from aggregator.running_sum import RunningSum, UnusableSum, next_consensus
from aggregator.store.codec import dump_event, load_event
from dcfpca.errors import BadMessage
from dcfpca.fate import Fate
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus, FloatArray, TensorMessage, Total
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb
from participant.session import events as site_events
from tests.support.secagg import verify

START = Run(run_id="r1", created_at=0.0, seal=bytes(32))


@dataclass
class _Sums:
    consensus: Consensus


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
    updates: Mapping[tuple[int, int, str], bytes]
    consensus: Consensus
    reached: tuple[Summed, ...]


@dataclass
class SimulatedAggregator:
    """`journal`, `consensus` and `updates` are its disk, written together; everything else is lost in a crash."""

    spec: RunSpec
    journal: list[bytes] = field(default_factory=list)
    updates: dict[tuple[int, int, str], bytes] = field(default_factory=dict)
    reached: list[Summed] = field(default_factory=list)
    run: Run = START
    to_sum: Sum | None = None
    clock: float = 1.0

    def __post_init__(self) -> None:
        self.spec_bytes = self.spec.canonical()
        self.method = method_of(self.spec)
        self.sums = _Sums(self.method.begin())
        self.facts = FactsOfStage(self)  # type: ignore[arg-type]

    def tell(self, event: events.Event, update: bytes = b"") -> Reply | None:
        """One event, durable with all it leads to before anybody is answered."""
        after, effects = step(self.spec, self.run, event)
        if after is not self.run:
            self.journal.append(dump_event(event))
        accepted = any(isinstance(effect, Reply) and effect.fate is Fate.ACCEPTED for effect in effects)
        if accepted and isinstance(event, events.UpdateReceived):
            self.updates[event.round, event.attempt, event.participant] = update
        self.run = after
        for effect in effects:
            match effect:
                case Sum():
                    self.to_sum = effect
                case Recast():
                    self.sums.consensus = recast(self.sums.consensus, effect)
                case Discard(round, attempt):
                    self.updates = {key: data for key, data in self.updates.items() if key[:2] > (round, attempt)}
        return next((effect for effect in effects if isinstance(effect, Reply)), None)

    def receive(self, event: events.RoundMessage, update: bytes = b"", ticket: bytes = b"") -> Reply:
        """A message of a participant, checked as at the service's door."""
        phase, here = PHASE_OF[type(event)], self.run.round
        if ticket and here and ticket != ticket_of(self.run, here, self.facts.consensus()[0].sha256):
            return Reply(Fate.LATE, "this attempt was opened anew")
        if out_of_turn(self.run, event.participant, event.round, event.attempt, phase) is None:
            try:
                self._check(event)
            except BadMessage as error:
                return Reply(Fate.REJECTED, str(error))
        reply = self.tell(event, update)
        assert reply is not None
        return reply

    def _check(self, event: events.RoundMessage) -> None:
        book, round = self.facts.book(), self.run.round
        assert round is not None
        match event:
            case events.KeysAdvertised():
                secure_sum_checks.check_keys(self.spec, self.facts.spec_sha256, self.run, event, verify)
            case events.SharesSent():
                assert book is not None
                secure_sum_checks.check_shares(book, event)
            case events.BoundStated():
                secure_sum_checks.check_bound(event)
            case events.SurvivorsAttested():
                assert book is not None
                secure_sum_checks.check_attestation(book, round, event, verify)
            case events.SharesRevealed():
                assert book is not None
                secure_sum_checks.check_reveal(book, round, event)
            case events.UpdateReceived():
                pass

    def sum(self, vectors: dict[tuple[str, int, bytes], FloatArray]) -> None:
        """Form the consensus; it must be what the survivors' own vectors, added in the open, lead to."""
        effect, here = self.to_sum, self.run.round
        self.to_sum = None
        if effect is None or here is None or self.run.status is not Status.RUNNING or here.phase is not Phase.SUMMING:
            return
        if (here.round, here.attempt) != (effect.round, effect.attempt):
            return
        running = RunningSum(self.spec, self.method.update_layout(here.round))
        for name in here.survivors:
            running.add(0, self.updates[here.round, here.attempt, name])
        place = {"at": self.clock, "round": here.round, "attempt": here.attempt}
        try:
            after = next_consensus(self.spec, self.method, self.sums.consensus, here, self.facts.book(), running)
        except UnusableSum as error:
            self.tell(events.SumFailed(**place, reason=str(error)))
            return
        begun_with = self.facts.consensus()[0].sha256
        self._check_sum(after, [vectors[name, here.round, begun_with] for name in here.survivors])
        self.reached.append(Summed(here.round, here.attempt, here.survivors))
        self.tell(events.ConsensusReached(**place, outcome=after.outcome.value if after.outcome else ""))
        self.sums.consensus = after

    def _check_sum(self, after: Consensus, vectors: list[FloatArray]) -> None:
        layout = self.method.update_layout(self.sums.consensus.round)
        message = TensorMessage.unflatten(layout, np.sum(vectors, axis=0))
        wanted = self.method.advance(self.sums.consensus, Total(message, len(vectors)))
        assert np.allclose(after.broadcast.flat(), wanted.broadcast.flat(), rtol=1e-9, atol=1e-9)

    def replayed(self) -> Run:
        """The run as its journal tells it."""
        run = START
        for body in self.journal:
            run, _ = step(self.spec, run, load_event(body))
        return run

    def crash(self) -> None:
        """Lose the memory, and come back from the disk."""
        assert self.replayed() == self.run
        self.run = self.replayed()
        self.facts = FactsOfStage(self)  # type: ignore[arg-type]
        here = self.run.round
        summing = here is not None and self.run.phase == "summing"
        self.to_sum = Sum(here.round, here.attempt) if here is not None and summing else None

    def back_up(self) -> Backup:
        """Copy the disk."""
        return Backup(tuple(self.journal), dict(self.updates), self.sums.consensus, tuple(self.reached))

    def restore(self, backup: Backup) -> None:
        """Come back from a copy that was made some time ago."""
        self.journal, self.updates, self.reached = list(backup.journal), dict(backup.updates), list(backup.reached)
        self.sums.consensus = backup.consensus
        self.run = self.replayed()
        self.clock += 1.0
        self.crash()

    def greet(self, name: str, opened: site_events.Opened | None) -> None:
        """A participant connects and shows the last attempt that was opened to it."""
        if opened is None:
            return
        seen = Seen("r1", opened.ref.round, opened.ref.attempt, opened.consensus.sha256, opened.ticket)
        news = news_in(self.run, self.facts.consensus()[0].sha256, name, seen, self.clock)
        if news is not None:
            self.tell(news)

    def wanted_of(self, name: str) -> list[pb.Assignment]:
        """What a stream that is opened now is sent."""
        return [pb.Assignment.FromString(body) for body in assignments(self.facts.now(), self.run, name)]

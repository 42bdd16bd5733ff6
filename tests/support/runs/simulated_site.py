"""A participant's session of a plain run with a disk that survives and a memory that does not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from aggregator.run import events as run_events
from aggregator.run.attempts import Reply
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.rpca.stage import Site
from dcfpca.run_references import AttemptRef
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.wire.round_messages import consent_bytes
from dcfpca.wire.tensors import message_from
from participant import wire_codec
from participant.policy import SiteFacts, SitePolicy
from participant.session import Consent, Session, actions, events
from tests.support.runs.secagg import identity_of, verify
from tests.support.runs.simulated_aggregator import SimulatedAggregator

_IN_ROUND = get_args(actions.RoundMessage)


@dataclass
class Disk:
    """What a killed site finds again."""

    consent: Consent | None = None
    finished: bool = False
    inbox: list[events.Event] = field(default_factory=list)
    step: events.LocalStep | None = None


class SimulatedSite:
    """One participant. `outbox` holds what is under way and sent again until it is answered."""

    def __init__(self, name: str, spec: RunSpec, data: FloatArray) -> None:
        self.name, self.spec, self.data = name, spec, data
        self.disk = Disk()
        policy = SitePolicy(allow_plain=True, min_cohort=2, min_columns=1)
        self._facts = SiteFacts(name, data.shape[0], data.shape[1], False, False, policy)
        self.vectors: dict[tuple[int, bytes], FloatArray] = {}
        self.left: dict[tuple[int, int], bytes] = {}
        self._shadow = method_of(spec).site(ArrayColumns(data))
        self._begin()

    def _begin(self) -> None:
        self.session = Session("r1", self._facts, lambda: identity_of(self.name), self.disk.consent, self.disk.finished)
        self.outbox: list[actions.Action] = []
        self.computing: actions.Compute | None = None
        self._site: Site | None = None

    def crash(self) -> None:
        """kill -9 and a new start."""
        self._begin()
        past: list[events.Event] = [self.disk.step] if self.disk.step else []
        self.session.replay([*past, *self.disk.inbox])
        self._perform(self.session.resume())

    def hear(self, assignment: pb.Assignment) -> None:
        """An assignment arrives."""
        self.take(wire_codec.decode(assignment))

    def take(self, event: events.Event) -> None:
        before, opened = self.session.consent, self.session.opened
        reaction = self.session.handle(event)
        if self.session.opened is not opened:
            self.outbox = [action for action in self.outbox if type(action) not in _IN_ROUND]
        if reaction.save:
            self._save(event, before)
        self._perform(reaction.actions)

    def _save(self, event: events.Event, before: Consent | None) -> None:
        if self.session.consent is not before:
            self.disk.consent = self.session.consent
        elif isinstance(event, events.Opened):
            self.disk.inbox = [event]
        elif isinstance(event, events.Ended | events.ResultsWritten):
            self.disk.finished, self.disk.inbox, self.disk.step = True, [], None
        elif not isinstance(event, events.Answered):  # its local step is on the disk
            self.disk.inbox.append(event)

    def _perform(self, wanted: tuple[actions.Action, ...]) -> None:
        for action in wanted:
            match action:
                case actions.Compute():
                    self.computing = action
                case actions.Finish():
                    self.take(events.ResultsWritten(action.outcome))
                case actions.LogRefusal() | actions.Forget():
                    pass
                case _ if action not in self.outbox:
                    self.outbox.append(action)

    def compute(self) -> None:
        """The local step ends; its outcome is on the disk before anything of it leaves."""
        action, self.computing = self.computing, None
        if action is None:
            return
        step = self.session.step
        if step is None or (step.round, step.consensus_sha256) != (action.round, action.consensus.sha256):
            step = self._step(action)
        self.take(events.Answered(step, self._ref(action.round)))

    def _ref(self, round: int) -> AttemptRef:
        """The attempt at the round that is open now; if none is by now, the answer is one to an earlier attempt."""
        opened = self.session.opened
        return opened.ref if opened is not None and opened.ref.round == round else AttemptRef("r1", round, 0)

    def _step(self, action: actions.Compute) -> events.LocalStep:
        method = method_of(self.spec)
        stage = method.stage(action.consensus.stage)
        consensus = Consensus(action.round, stage.name, message_from(stage.down, action.consensus.inline))
        if self._site is None:
            self._site = method.site(ArrayColumns(self.data))
            if self.disk.step:
                self._site.restore(self.disk.step.snapshot)
        vector = self._site.answer(consensus).flat()
        asked = (action.round, action.consensus.sha256)
        if asked not in self.vectors:
            self.vectors[asked] = self._shadow.answer(consensus).flat()
        assert np.array_equal(vector, self.vectors[asked]), "a restart changed the update"
        self.disk.step = events.LocalStep(action.round, action.consensus.sha256, vector, self._site.snapshot())
        return self.disk.step

    def send(self, index: int, aggregator: SimulatedAggregator, *, answered: bool) -> None:
        """One message reaches the aggregator; its answer may be lost, and then the message is sent again."""
        action = self.outbox[index % len(self.outbox)]
        if isinstance(action, actions.Consent):
            self._respond(action, aggregator)
        else:
            self._message(action, aggregator)
        if answered and action in self.outbox:
            self.outbox.remove(action)
            if type(action) in _IN_ROUND:
                self.take(events.Acknowledged(action.ref))  # type: ignore[union-attr]

    def _respond(self, action: actions.Consent, aggregator: SimulatedAggregator) -> Reply:
        identity = identity_of(self.name)
        said = consent_bytes(
            "r1", action.digest, self.name, accept=action.accept, private=action.private, reasons=action.reasons
        )
        at, signature = aggregator.clock, identity.sign(said)
        event = run_events.Responded(at=at, participant=self.name, accept=action.accept, signature=signature)
        assert verify(identity.certificate, self.name)
        reply = aggregator.tell(event)
        assert reply is not None
        return reply

    def _message(self, action: Any, aggregator: SimulatedAggregator) -> Reply:
        assert isinstance(action, actions.Submit)
        update, latest = bytes(self.session.update(action.ref)[0]), self.session.opened
        event = run_events.UpdateReceived(
            at=aggregator.clock,
            participant=self.name,
            ref=action.ref,
            sha256=hashlib.sha256(update).digest(),
            size=len(update),
        )
        assert self.left.setdefault((action.ref.round, action.ref.attempt), update) == update, "two updates left"
        return aggregator.receive(event, update, latest.ticket if latest else b"")

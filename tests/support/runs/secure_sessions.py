"""Sessions of a cohort in one run that waits for everybody, with an honest aggregator in memory and real numerics."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dcfpca.method_memory import encode_memory
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus, TensorMessage, Total
from dcfpca.rpca.stage import Site
from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.run_references import AttemptRef
from dcfpca.secagg.aggregator import shares_for
from dcfpca.secagg.fixed_point import block_layout, lifted, next_exponents
from dcfpca.secagg.messages import NO_SUM, Masked, Misfit, Roster, SealedShare
from dcfpca.spec import RunSpec
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.round_messages import misfit_to_wire, ref_to_wire
from dcfpca.wire.tensors import digested, header_of, message_bytes
from participant import wire_codec
from participant.policy import SiteFacts, SitePolicy
from participant.session import Reaction, Session, actions, events
from participant.session.events import ShownSum
from participant.session.secure_run import Admitted, announced_opening
from participant.session.verification import check_announced, following
from tests.support.runs.masked_sums import begin_tally, close_roster
from tests.support.runs.secagg import identity_of, verify

NAMES = ("a", "b", "c")
ROWS = 12


def spec_of(**changes: Any) -> RunSpec:
    return RunSpec.model_validate({"rows": ROWS, "rank": 2, "rounds": 5, "tolerance": 0.0} | changes)


def admit(session: Session, opened: events.Opened) -> Admitted:
    """As the driver does, with the bytes that came along with the announcement."""
    assert session.secure is not None
    payload = digested(opened.consensus.inline)
    return session.secure.admit(session.open_round(opened.ref.round), payload, session.step)


def entropy_of(name: str) -> bytes:
    return name.encode() * 64


@dataclass
class WaitingCohort:
    """Every member's session, its data, and what an honest aggregator knows."""

    spec: RunSpec = field(default_factory=spec_of)
    sessions: dict[str, Session] = field(default_factory=dict)
    sites: dict[str, Site] = field(default_factory=dict)
    shares: list[SealedShare] = field(default_factory=list)
    misfits: tuple[Misfit, ...] = ()
    previous: bytes = NO_SUM
    shown: ShownSum | None = None

    def __post_init__(self) -> None:
        self.method = method_of(self.spec)
        problem = generate(Recipe(rows=ROWS, columns=21, rank=2, sparsity=0.05, counts=(8, 7, 6)), 1)
        self.sites = {name: self.method.site(own) for name, own in zip(NAMES, problem.sites(), strict=True)}
        self.sessions = {name: self.session(name) for name in NAMES}
        self.consensus: Consensus = self.method.begin()
        self.exponents = block_layout(self.method.stages[0].up, self.spec.precision).first_exponents

    def session(self, name: str, **policy: Any) -> Session:
        facts = SiteFacts(name, ROWS, 6, False, False, SitePolicy(**{"min_columns": 1} | policy))
        session = Session("run-1", facts, lambda: identity_of(name))
        (answer,) = session.handle(events.Proposed(self.spec.canonical(), self.spec.digest())).actions
        assert isinstance(answer, actions.Consent)
        assert answer.accept, answer.reasons
        return session

    def restarted(self, name: str) -> Session:
        """A session made from what the driver saves: the record, the last local step, the last opening."""
        old, new = self.sessions[name], self.session(name)
        assert old.secure is not None
        record = old.secure.record
        past: list[events.Event] = [events.Restored(old.secure.cohort, (record, record) if record else ())]
        new.replay([*past, *([old.step] if old.step else []), *([old.opened] if old.opened else [])])
        self.sessions[name] = new
        return new

    def key_wanted(self, name: str) -> Reaction:
        return self.sessions[name].handle(events.KeyWanted(self.spec.digest(), NAMES, entropy_of(name)))

    def set_up(self) -> WaitingCohort:
        adverts = {}
        for name in NAMES:
            (sent,) = self.key_wanted(name).actions
            assert isinstance(sent, actions.AdvertiseRunKey)
            adverts[name] = sent.advert
        fixed = self.sessions["a"].secure
        assert fixed is not None
        self.terms = fixed.terms
        self.roster: Roster = close_roster(self.terms, adverts, verify)
        for name in NAMES:
            (shared,) = self.sessions[name].handle(events.RosterClosed(self.roster)).actions
            assert isinstance(shared, actions.ShareGroupSecret)
            self.shares += shared.shares
        for name in NAMES:
            assert self.sessions[name].handle(self.relayed(name)).save
        return self

    def relayed(self, name: str) -> events.SharesRelayed:
        return events.SharesRelayed(self.roster, shares_for(name, self.shares))

    def announced(self, **changes: Any) -> pb.RoundOpened:
        payload = message_bytes(self.consensus.broadcast)
        layout = self.method.stage(self.consensus.stage).down
        ref = AttemptRef("run-1", self.consensus.round, 1 + len(self.misfits))
        fields: dict[str, Any] = {
            "ref": ref_to_wire(ref),
            "spec_sha256": self.spec.digest(),
            "cohort": NAMES,
            "consensus": header_of(payload, layout, types.DTYPE_FLOAT64),
            "previous_sum": self.previous,
            "exponents": self.exponents,
            "misfits": [misfit_to_wire(one) for one in self.misfits],
            "memory_sha256": hashlib.sha256(encode_memory(self.consensus.memory)).digest(),
            "stage": self.consensus.stage,
        }
        return pb.RoundOpened(**(fields | changes))

    def opened(self, **changes: Any) -> events.Opened:
        announced = self.announced(**changes)
        announced.inline_consensus = message_bytes(self.consensus.broadcast)
        return wire_codec.opened_of(announced, "run-1")

    def answer(self, name: str, opened: events.Opened) -> tuple[actions.Action, ...]:
        """What the driver does with an opening: admit, verify the sum before, compute once, mask, and save."""
        session = self.sessions[name]
        wanted = session.handle(opened).actions
        if not wanted or not isinstance(wanted[0], actions.Compute):
            return wanted
        admitted = admit(session, opened)
        run = session.secure
        assert run is not None
        step = admitted.step
        if step is None:
            self.verify(session, opened)
            broadcast, stage = self.consensus.broadcast.flat(), self.consensus.stage
            vector = self.sites[name].answer(self.consensus).flat()
            asked = opened.consensus.sha256
            step = events.LocalStep(opened.ref.round, asked, vector, {}, broadcast, stage, admitted.bound)
        return session.handle(run.answer(admitted, step)).actions

    def verify(self, session: Session, opened: events.Opened) -> None:
        assert session.secure is not None
        before = session.secure.seen(session.step)
        if before is not None and self.shown is not None:
            run = session.secure
            expected = following(run.agreed, run.side, before, self.shown, None, opened.announced)
            check_announced(run.agreed, run.side, before, opened.announced, self.consensus.broadcast, expected)

    def round(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """One whole round; returns the numbers of its sum."""
        opened = self.opened()
        layout = block_layout(self.method.stage(self.consensus.stage).up, self.spec.precision)
        opening = announced_opening(opened.announced, layout, hashlib.sha256(opened.consensus.inline))
        tally = begin_tally(self.terms, self.roster, opening)
        for name in NAMES:
            (sent,) = self.answer(name, opened)
            assert isinstance(sent, actions.Submit), sent
            payload, tag, context = self.sessions[name].update(opened.ref)
            tally.add(Masked(name, context, np.frombuffer(payload, dtype="<u8"), tag))
        total = tally.open(self.terms, opening)
        memory = encode_memory(self.consensus.memory)
        self.shown = ShownSum(opened.announced, total.tag, memory, total.values.tobytes())
        sums = TensorMessage.unflatten(self.method.stage(self.consensus.stage).up, total.numbers)
        self.consensus = self.method.advance(self.consensus, Total(sums, len(NAMES)))
        self._next_exponents(opening.layout, total.numbers)
        self.previous, self.misfits = total.digest, ()
        return total.numbers

    def _next_exponents(self, before: Any, numbers: Any) -> None:
        layout = block_layout(self.method.stage(self.consensus.stage).up, self.spec.precision)
        ended = lifted(before, self.exponents, len(self.misfits), self.spec.precision)
        follow = layout == before
        self.exponents = next_exponents(layout, ended, numbers, 64) if follow else layout.first_exponents

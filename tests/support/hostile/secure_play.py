"""A run of the fixed-cohort secure sum as a `LyingAggregator` plays it: honest unless a test changes a message.

run = FixedCohortPlay(liar, names)
run.enrol()
run.set_up()
run.play_round()                                          # an honest round
opened = run.announcement()                               # what an honest aggregator announces next
after = run.open({"ann": opened, "bob": other})           # what this one announces
run.total(opened, run.answers(opened, after).values())    # what comes of adding up what was sent
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from dcfpca.method_memory import encode_memory
from dcfpca.rpca.method import Consensus
from dcfpca.secagg.aggregator import OpenedSum, accept_advert, accept_shares, shares_for
from dcfpca.secagg.fixed_point import RING, BlockLayout, block_layout, lifted, next_exponents
from dcfpca.secagg.messages import NO_SUM, Advert, Masked, Opening, Roster, RunTerms, SealedShare
from dcfpca.secagg.set_up import roster_digest
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire import round_messages as wire
from dcfpca.wire.tensors import header_of
from participant.session.secure_run import announced_opening
from participant.wire_codec import announcement_of
from tests.support.hostile.lying_aggregator import Heard, LyingAggregator
from tests.support.hostile.played_run import PlayedRun, changed
from tests.support.runs.masked_sums import begin_tally, close_roster


class FixedCohortPlay(PlayedRun):
    """One run. `opened` and `sums` are the rounds that were honestly summed so far, `history` their consensuses."""

    def __init__(self, liar: LyingAggregator, names: Iterable[str], **spec: Any) -> None:
        super().__init__(liar, names, **spec)
        self.roster = Roster(())
        self.opened: dict[int, pb.RoundOpened] = {}
        self.sums: dict[int, OpenedSum] = {}
        self.history: list[Consensus] = []
        last, precision = self.spec.last_round, self.spec.precision
        self.terms = RunTerms(self.run_id, self.spec.digest(), self.names, last, precision=precision)

    # Set-up.

    def set_up(self) -> None:
        """The keys of the run and the shares of the group secret, relayed as they came."""
        self.relay_roster(self.collect_adverts())
        self.relay_shares()

    def collect_adverts(self) -> Roster:
        """Ask every site for its key."""
        for name in self.names:
            self.tell(name, run_key_wanted=pb.RunKeyWanted(spec_sha256=self.spec.digest(), cohort=self.names))
        known: dict[str, Advert] = {}
        for name in self.names:
            heard = self.liar.await_call("AdvertiseRunKey", name, self.run_id)
            advert = wire.advert_from_wire(heard.request.key)
            accept_advert(self.terms, known, advert, self.liar.trust.participant_key)
            known[name] = advert
        return close_roster(self.terms, known, self.liar.trust.participant_key)

    def relay_roster(self, roster: Roster) -> None:
        """Tell every site everybody's key."""
        self.roster = roster
        for name in self.names:
            self.tell(name, roster_closed=pb.RosterClosed(keys=wire.roster_to_wire(roster)))

    def relay_shares(self) -> None:
        """Take everybody's sealed shares, and tell each site those that are for it."""
        digest = roster_digest(self.terms, self.roster)
        given: list[SealedShare] = []
        for name, advert in zip(self.names, self.roster.adverts, strict=True):
            heard = self.liar.await_call("ShareGroupSecret", name, self.run_id)
            shares = wire.shares_from_wire(heard.request.shares)
            key = self.liar.trust.participant_key(advert.certificate, name)
            accept_shares(digest, self.names, name, key, shares)
            given += shares
        keys = wire.roster_to_wire(self.roster)
        for name in self.names:
            incoming = wire.shares_to_wire(shares_for(name, given))
            self.tell(name, group_shares_relayed=pb.GroupSharesRelayed(incoming=incoming, keys=keys))

    # Rounds.

    def announcement(self, consensus: Consensus | None = None, attempt: int = 1) -> pb.RoundOpened:
        """The round that is due, bound to the sum before, with another consensus if one is given."""
        announced, opened = consensus or self.consensus, super().announcement(consensus, attempt)
        before = self.sums.get(announced.round - 1)
        opened.previous_sum = before.digest if before else NO_SUM
        opened.exponents.extend(self.exponents(announced))
        opened.memory_sha256 = hashlib.sha256(encode_memory(announced.memory)).digest()
        return opened

    def exponents(self, announced: Consensus) -> tuple[int, ...]:
        """Those of the layout, or what follows from the last sum if it had the same layout."""
        layout, before = self.blocks(announced.stage), self.opened.get(announced.round - 1)
        if before is None or self.blocks(before.stage) != layout:
            return layout.first_exponents
        ended = lifted(layout, tuple(before.exponents), len(before.misfits), self.spec.precision)
        return next_exponents(layout, ended, self.sums[announced.round - 1].numbers, self.spec.precision)

    def blocks(self, stage: str) -> BlockLayout:
        """The blocks of updates in this stage; of any, where the aggregator invents one."""
        known = stage if any(stage == one.name for one in self.method.stages) else self.consensus.stage
        return block_layout(self.method.stage(known).up)

    def answer(self, name: str, opened: pb.RoundOpened, after: int = 0) -> Heard:
        """What the site says to a round: its masked update, or that it does not fit."""
        calls = ("SubmitUpdate", "ReportMisfit")
        return self.liar.await_heard(
            lambda one: one.site == name and one.call in calls and one.request.ref == opened.ref, after
        )

    def answers(self, opened: pb.RoundOpened, after: int = 0) -> dict[str, Heard]:
        """What every site says to it."""
        return {name: self.answer(name, opened, after) for name in self.names}

    def play_round(self) -> OpenedSum:
        """An honest round, lifts included; the run goes on with what follows from its sum."""
        opened = self.announcement()
        answers = self.answers(opened, self.open(opened))
        while misfits := [one for one in answers.values() if one.call == "ReportMisfit"]:
            opened = with_lift(opened, misfits[0].request.misfit)
            answers = self.answers(opened, self.open(opened))
        return self.close(opened, self.total(opened, answers.values()))

    def total(self, opened: pb.RoundOpened, answers: Iterable[Heard]) -> OpenedSum:
        """What an aggregator that believes in this announcement reads in the sum of these answers, few or many."""
        opening = self.opening(opened)
        tally = begin_tally(self.terms, self.roster, opening)
        for heard in answers:
            values = np.frombuffer(heard.payload, RING[self.spec.precision]).copy()
            tally.add(Masked(heard.site, tally.context, values, heard.request.tag))
        tally.members |= set(self.names)
        return tally.open(self.terms, opening)

    def opening(self, opened: pb.RoundOpened) -> Opening:
        """The announcement as the secure sum knows it."""
        return announced_opening(
            announcement_of(opened), self.blocks(opened.stage), hashlib.sha256(opened.inline_consensus)
        )

    def close(self, opened: pb.RoundOpened, total: OpenedSum) -> OpenedSum:
        """Take a sum for that of the round, keep it for those who verify it, and go on to what follows."""
        round = opened.ref.round
        self.opened[round], self.sums[round] = opened, total
        self.liar.sums[self.run_id, round] = self.sum_pieces(opened, total)
        self.history.append(self.consensus)
        self.advance(round, total.numbers, len(self.names))
        return total

    def sum_pieces(self, opened: pb.RoundOpened, total: OpenedSum) -> tuple[pb.SumHeader, bytes]:
        """What FetchSum streams of the sum of the round that is due."""
        payload = total.values.tobytes()
        dtype = types.DTYPE_UINT64 if self.spec.precision == 64 else types.DTYPE_UINT32
        header = pb.SumHeader(
            tensor=header_of(payload, self.method.stage(opened.stage).up, dtype),
            tag=total.tag,
            opened=changed(opened, lambda message: message.ClearField("inline_consensus")),
            memory=encode_memory(self.consensus.memory),
            contributors=len(self.names),
        )
        return header, payload


def with_lift(opened: pb.RoundOpened, misfit: pb.Misfit) -> pb.RoundOpened:
    """The announcement after one more misfit."""

    def lift(other: pb.RoundOpened) -> None:
        other.misfits.append(misfit)
        other.ref.attempt += 1

    return changed(opened, lift)

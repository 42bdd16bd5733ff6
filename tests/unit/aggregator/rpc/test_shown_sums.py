"""Who is sent the sum of the round before with the announcement of a round, and who the consensus."""

from __future__ import annotations

import pytest

from aggregator.rpc.assignment_messages import StageFacts, outgoing, stage_facts
from aggregator.run.rules import assignments
from aggregator.store.run_rows import StoredSum
from aggregator.sums import encoded_consensus, sums_of
from dcfpca.methods import method_of
from dcfpca.secagg.messages import members_in_turn
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.wire.constants import MESSAGE_BYTES, SMALL_SUM
from tests.support.runs.rules import NAMES
from tests.support.runs.secure_rules import WaitingRun

ROUND = 3


@pytest.fixture(scope="module")
def waiting() -> WaitingRun:
    return WaitingRun(rounds=9).set_up().rounds(until=ROUND)


def facts_of(waiting: WaitingRun, size: int, round: int = ROUND - 1) -> StageFacts:
    method = method_of(waiting.spec)
    shown = StoredSum(round, pb.SumHeader(tag=7).SerializeToString(), bytes(size))
    return stage_facts(sums_of(waiting.terms), b"", waiting.run, encoded_consensus(method.begin()), shown)


def opened_to(waiting: WaitingRun, facts: StageFacts, name: str) -> pb.RoundOpened:
    (one,) = assignments(waiting.rules, waiting.run, name)
    message = outgoing(facts, waiting.run, name, one)[0]()
    return pb.Assignment.FromString(message).round_opened


def test_a_small_sum_goes_to_everybody(waiting: WaitingRun) -> None:
    facts = facts_of(waiting, SMALL_SUM)
    for name in NAMES:
        opened = opened_to(waiting, facts, name)
        assert (len(opened.inline_sum), opened.sum.tag) == (SMALL_SUM, 7)


def test_a_larger_sum_goes_to_those_in_turn_and_the_consensus_to_the_others(waiting: WaitingRun) -> None:
    facts = facts_of(waiting, SMALL_SUM + 8)
    for name in NAMES:
        opened, turn = opened_to(waiting, facts, name), name in members_in_turn(waiting.run.cohort, ROUND)
        assert bool(opened.inline_sum) is turn
        assert opened.HasField("sum") is turn


@pytest.mark.parametrize(("size", "round"), [(MESSAGE_BYTES + 8, ROUND - 1), (8, ROUND - 2)])
def test_a_sum_that_is_too_large_or_of_another_round_goes_to_nobody(waiting: WaitingRun, size: int, round: int) -> None:
    facts = facts_of(waiting, size, round)
    assert not any(opened_to(waiting, facts, name).HasField("sum") for name in NAMES)

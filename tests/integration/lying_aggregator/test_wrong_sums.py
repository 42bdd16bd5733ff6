"""Sites check the aggregator: the sum by its tag, and the arithmetic by carrying it out again."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from dcfpca.method_memory import encode_memory
from dcfpca.rpca.method import FloatArray, Outcome, TensorMessage
from dcfpca.rpca.subspace.round_plan import PLAN_SCALARS
from dcfpca.secagg.aggregator import OpenedSum
from dcfpca.secagg.errors import Evidence, SwappedKey
from dcfpca.secagg.messages import Complaint, check_complaint, opening_digest
from dcfpca.secagg.set_up import roster_digest
from dcfpca.v1 import rounds_pb2 as pb
from participant.state.ledger import EVIDENCE, Ledger
from tests.support.hostile.attacked_sites import (
    NAMES,
    Watch,
    at_round,
    await_results,
    begun,
    refused,
    sent_answers,
    state_of,
    with_broadcast,
)
from tests.support.hostile.lying_aggregator import LyingAggregator
from tests.support.hostile.played_run import changed
from tests.support.hostile.secure_play import FixedCohortPlay
from tests.support.runs.masked_sums import begin_tally, check_evidence


def forged(run: FixedCohortPlay, opened: pb.RoundOpened, total: OpenedSum, place: int, by: int) -> OpenedSum:
    """The sum with one number changed by so many units of fixed point, and the tag that goes with the true one."""
    values = total.values.copy()
    values[place] += np.array(by, np.int64).astype(values.dtype)
    opening = run.opening(opened)
    tally = begin_tally(run.terms, run.roster, opening)
    return replace(tally, values=values, tag=total.tag, members=set(NAMES)).open(run.terms, opening)


def with_sum(run: FixedCohortPlay, opened: pb.RoundOpened) -> pb.RoundOpened:
    """The announcement with the sum of the round before in place of the consensus."""
    header, payload = run.liar.sums[run.run_id, opened.ref.round - 1]

    def show(told: pb.RoundOpened) -> None:
        told.sum.CopyFrom(header)
        told.inline_sum = payload
        told.ClearField("inline_consensus")

    return changed(opened, show)


def complaints(run: FixedCohortPlay, error: str) -> dict[str, pb.ComplainRequest]:
    """The signed complaint of every site, checked as an operator would."""
    found = {}
    for name in NAMES:
        made = run.liar.await_call("Complain", name, run.run_id).request
        assert made.error == error
        complaint = Complaint(name, made.accused, made.error, made.sentence, made.certificate, made.signature)
        check_complaint(run.terms, complaint, run.liar.trust.participant_key)
        found[name] = made
    return found


@pytest.mark.parametrize("by", [1, -1, 1 << 20, -(1 << 59)])
def test_a_forged_sum_is_refused_by_name_and_reported(liar: LyingAggregator, by: int) -> None:
    run = begun(liar, played=2)
    opened = run.announcement()
    true = run.total(opened, run.answers(opened, run.open(opened)).values())
    run.close(opened, forged(run, opened, true, place=3, by=by))
    assert_refused(run, run.announcement(), "WrongSum")


def test_a_sum_in_place_of_the_consensus_is_all_that_a_site_needs(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    opened = run.announcement()
    answers = run.answers(opened, after := run.open(with_sum(run, opened)))
    run.close(opened, run.total(opened, answers.values()))
    assert not [one.call for one in liar.heard[after:] if one.call.startswith("Fetch")]
    run.play_round()


def test_a_forged_sum_in_place_of_the_consensus_is_refused_by_name_and_reported(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    opened = run.announcement()
    true = run.total(opened, run.answers(opened, run.open(opened)).values())
    run.close(opened, forged(run, opened, true, place=3, by=1))
    assert_refused(run, with_sum(run, run.announcement()), "WrongSum")


def test_a_steered_consensus_is_refused_where_the_sum_is_shown_in_its_place(liar: LyingAggregator) -> None:
    run = begun(liar, played=3)
    scalars = run.consensus.broadcast.scalars.copy()
    scalars[PLAN_SCALARS.index("threshold")] *= 0.97
    opened = run.announcement(with_broadcast(run.consensus, TensorMessage(run.consensus.broadcast.tensor, scalars)))
    watch, after = Watch(run), len(liar.heard)
    for name in NAMES:
        run.tell(name, round_opened=with_sum(run, opened))
    # What was announced is not what follows, so a site asks for it before it judges.
    liar.consensus[run.run_id, opened.ref.round, False] = (opened.consensus, opened.inline_consensus)
    for name in NAMES:
        watch.refusal(name)
    assert refused(opened, liar, after) == list(NAMES)


def test_a_sum_that_differs_by_what_was_announced_of_it_is_refused(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    opened = run.announcement()
    true = run.total(opened, run.answers(opened, run.open(opened)).values())
    run.close(opened, true)
    told = changed(run.announcement(), lambda one: setattr(one, "previous_sum", bytes(32)))
    watch, after = Watch(run), run.open(told)
    for name in NAMES:
        watch.refusal(name)
    assert refused(told, liar, after) == list(NAMES)


@pytest.mark.parametrize("scalar", ["threshold", "noise", "columns", "step"])
def test_a_steered_consensus_is_refused_by_name_and_reported(liar: LyingAggregator, scalar: str) -> None:
    run = begun(liar, played=3)
    scalars = run.consensus.broadcast.scalars.copy()
    scalars[PLAN_SCALARS.index(scalar)] *= 1.0 - 1e-5 if scalar == "columns" else 0.97
    steered = with_broadcast(run.consensus, TensorMessage(run.consensus.broadcast.tensor, scalars))
    watch, after = Watch(run), run.open(opened := run.announcement(steered))
    for name in NAMES:
        watch.refusal(name)
    assert refused(opened, liar, after) == list(NAMES)


def test_another_subspace_than_the_one_that_follows_is_refused_by_name_and_reported(liar: LyingAggregator) -> None:
    run = begun(liar, played=3)
    tensor = np.linalg.qr(np.random.default_rng(1).standard_normal(run.consensus.broadcast.tensor.shape))[0]
    steered = with_broadcast(run.consensus, TensorMessage(tensor, run.consensus.broadcast.scalars))
    assert_refused(run, run.announcement(steered), "WrongConsensus")


def test_a_memory_other_than_the_announced_one_is_refused(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    run.play_round()
    header, payload = liar.sums[run.run_id, 2]
    other = pb.SumHeader()
    other.CopyFrom(header)
    other.memory = header.memory[:-8] + np.float64(7.0).tobytes()
    liar.sums[run.run_id, 2] = (other, payload)
    watch, after = Watch(run), run.open(opened := run.announcement())
    for name in NAMES:
        watch.refusal(name)
    assert refused(opened, liar, after) == list(NAMES)


def test_a_forged_memory_does_not_steer_the_consensus_after(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    true, run.consensus = run.consensus, replace(run.consensus, memory=forged_memory(run))
    opened = run.announcement()
    watch, after = Watch(run), run.open(opened)
    answers = sent_answers(run, opened, watch, after)
    if len(answers) < len(NAMES):
        return
    run.close(opened, run.total(opened, answers.values()))
    assert run.consensus.broadcast.scalars.tolist() != true.broadcast.scalars.tolist()
    steered = run.announcement()
    watch, after = Watch(run), run.open(steered)
    for name in NAMES:
        watch.refusal(name)
    assert refused(steered, liar, after) == list(NAMES)


@pytest.mark.parametrize(
    "lie", ["other directions", "no directions", "no numbers", "other directions, one beyond squaring"]
)
def test_no_results_are_formed_from_a_final_consensus_that_does_not_follow(liar: LyingAggregator, lie: str) -> None:
    run = begun(liar, played=3)
    tensor = np.random.default_rng(1).standard_normal(run.consensus.broadcast.tensor.shape)
    tensor = np.zeros_like(tensor) if lie == "no directions" else np.linalg.qr(tensor)[0]
    if lie == "no numbers":
        tensor[:] = np.nan
    if lie.endswith("squaring"):
        tensor[:, -1] *= 1e200
    true = run.consensus
    run.consensus = with_broadcast(true, TensorMessage(tensor, true.broadcast.scalars))
    watch = Watch(run)
    run.finish()
    for name in NAMES:
        watch.refusal(name, "WrongConsensus")
        assert not (state_of(liar, name).parent / "results" / run.run_id).exists()
        assert run.liar.await_call("Complain", name, run.run_id).request.error == "WrongConsensus"
    run.consensus = true
    run.finish()
    await_results(run, watch, checked=True)


def test_after_a_false_end_none_is_believed_without_the_last_sum(liar: LyingAggregator) -> None:
    run = begun(liar, played=3)
    true, shown = run.consensus, liar.sums[run.run_id, 2]
    false = np.linalg.qr(np.random.default_rng(1).standard_normal(true.broadcast.tensor.shape))[0]
    run.consensus = with_broadcast(true, TensorMessage(false, true.broadcast.scalars))
    watch = Watch(run)
    run.finish()
    for name in NAMES:
        watch.refusal(name, "WrongConsensus")
    del liar.sums[run.run_id, 2]
    watch = Watch(run)
    run.finish()
    for name in NAMES:
        watch.refusal(name, "WrongConsensus")
        assert not (state_of(liar, name).parent / "results" / run.run_id).exists()
    liar.sums[run.run_id, 2] = shown
    run.consensus = true
    run.finish()
    await_results(run, watch, checked=True)


def test_results_say_when_the_aggregator_did_not_show_the_last_sum(liar: LyingAggregator) -> None:
    run = begun(liar, played=3)
    del liar.sums[run.run_id, 2]
    watch = Watch(run)
    run.finish()
    for name in NAMES:
        watch.said(name, lambda line: line["action"] == "final_consensus_not_checked")
    await_results(run, watch, checked=False)


@pytest.mark.parametrize("within", [False, True])
def test_a_run_that_did_not_converge_is_not_called_checked_where_it_is_said_to_have(
    liar: LyingAggregator, within: bool
) -> None:
    run = begun(liar, played=3)
    if within:
        run.answers(opened := run.announcement(), run.open(opened))
    watch = Watch(run)
    run.finish(reason=Outcome.CONVERGED.value)
    await_results(run, watch, checked=False)


def test_a_consensus_that_every_site_checked_before_it_answered_may_end_the_run(liar: LyingAggregator) -> None:
    run = begun(liar, played=3)
    opened = run.announcement()
    run.answers(opened, run.open(opened))
    watch = Watch(run)
    run.finish()
    await_results(run, watch, checked=True)


def test_a_true_consensus_under_a_later_number_is_refused(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    later = run.announcement(at_round(run.consensus, run.consensus.round + 1))
    later.previous_sum = run.sums[1].digest
    watch, after = Watch(run), run.open(later)
    for name in NAMES:
        watch.refusal(name)
    assert refused(later, liar, after) == list(NAMES)


def test_exponents_that_do_not_follow_from_the_last_sum_are_refused(liar: LyingAggregator) -> None:
    run = begun(liar, played=3)
    for place, by in ((0, -3), (1, -1), (0, 4)):
        other = changed(run.announcement(), shifted(place, by))
        watch, after = Watch(run), run.open(other)
        for name in NAMES:
            watch.refusal(name)
        assert refused(other, liar, after) == list(NAMES)


def shifted(place: int, by: int) -> Callable[[pb.RoundOpened], None]:
    def shift(opened: pb.RoundOpened) -> None:
        opened.exponents[place] += by

    return shift


def test_a_second_consensus_in_the_same_breath_is_not_answered_unverified(liar: LyingAggregator) -> None:
    run = begun(liar, played=3)
    true = run.announcement()
    scalars = run.consensus.broadcast.scalars.copy()
    scalars[PLAN_SCALARS.index("threshold")] *= 0.97
    steered = with_broadcast(run.consensus, TensorMessage(run.consensus.broadcast.tensor, scalars))
    second = changed(run.announcement(steered), lambda told: setattr(told.ref, "attempt", 2))
    watch = Watch(run)
    after = run.open(true)
    run.open(second)
    for name in NAMES:
        watch.refusal(name)
    assert refused(second, liar, after) == list(NAMES)


@pytest.mark.parametrize("what", ["memory", "sum before", "exponents"])
def test_the_same_consensus_with_another_announcement_in_the_same_breath_is_not_answered(
    liar: LyingAggregator, what: str
) -> None:
    # Sites check the first announcement while they compute; what they computed does not vouch for the second.
    run = begun(liar, played=2)
    true = run.announcement()

    def lie(told: pb.RoundOpened) -> None:
        told.ref.attempt = 2
        if what == "memory":
            told.memory_sha256 = hashlib.sha256(encode_memory(forged_memory(run))).digest()
        elif what == "sum before":
            told.previous_sum = bytes(32)
        else:
            told.exponents[0] -= 8

    watch, after = Watch(run), run.open(true)
    run.open(second := changed(true, lie))
    for name in NAMES:
        watch.refusal(name)
    assert refused(second, liar, after) == list(NAMES)


def forged_memory(run: FixedCohortPlay) -> dict[str, FloatArray]:
    """The memory of the round that is due, with another schedule."""
    memory = dict(run.consensus.memory)
    return memory | {"schedule": 0.97 * memory["schedule"]}


def test_a_sum_that_is_held_back_is_not_believed(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    run.play_round()
    del liar.sums[run.run_id, 2]
    watch, after = Watch(run), run.open(opened := run.announcement())
    for name in NAMES:
        watch.refusal(name)
    assert refused(opened, liar, after) == list(NAMES)


def assert_refused(run: FixedCohortPlay, opened: pb.RoundOpened, error: str) -> None:
    """Every site refuses the round by this name, says so to the operator, and sends nothing."""
    watch, after = Watch(run), run.open(opened)
    for name in NAMES:
        watch.refusal(name, error)
    assert refused(opened, run.liar, after) == list(NAMES)
    for name, made in complaints(run, error).items():
        assert made.accused == "", name
        assert made.sentence
        assert_evidence_kept(run, name, error, made.certificate)


def assert_evidence_kept(run: FixedCohortPlay, name: str, error: str, certificate: bytes) -> None:
    """The site's ledger has both digests and the context of the round, under the site's own signature."""
    with closing(sqlite3.connect(state_of(run.liar, name) / "state.db")) as database:
        entries = list(Ledger(database).entries(run.run_id))
    (kept,) = [entry for entry in entries if entry.item.kind == EVIDENCE]
    complaint = entries[entries.index(kept) + 1]
    assert (complaint.item.kind, complaint.item.shape) == ("complaint", error)
    held = json.loads(kept.item.detail)
    context, announced, found, signature = (
        bytes.fromhex(held[part]) for part in ("context", "announced", "found", "signature")
    )
    round = max(run.opened)
    assert (held["error"], kept.item.round) == (error, round)
    roster = roster_digest(run.terms, run.roster)
    assert context == opening_digest(run.terms, roster, run.opening(run.opened[round]))
    assert announced != found
    evidence = Evidence(round, context, announced, found)
    check_evidence(run.terms, name, evidence, (certificate, signature), run.liar.trust.participant_key)
    other = replace(evidence, announced=found)
    with pytest.raises(SwappedKey):
        check_evidence(run.terms, name, other, (certificate, signature), run.liar.trust.participant_key)

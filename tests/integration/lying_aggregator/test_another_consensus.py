"""Attack 1: another consensus, cohort, round or exponent for one site than for the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from dcfpca.rpca.method import Consensus, TensorMessage
from dcfpca.rpca.subspace.round_plan import PLAN_SCALARS
from dcfpca.secagg.fixed_point import decode, encode, lifted
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.wire import round_messages as wire
from tests.support.hostile.attacked_sites import (
    NAMES,
    OTHERS,
    VICTIM,
    Watch,
    assert_nothing_learned,
    begun,
    refused,
    sent_answers,
    with_broadcast,
)
from tests.support.hostile.lying_aggregator import LyingAggregator
from tests.support.hostile.played_run import changed
from tests.support.hostile.secure_play import FixedCohortPlay


def huge_scales(consensus: Consensus) -> Consensus:
    """Singular values and number of columns of 1e200: updates in units of them round to zero."""
    scalars = consensus.broadcast.scalars.copy()
    scalars[PLAN_SCALARS.index("columns")] = 1e200
    scalars[-consensus.broadcast.tensor.shape[1] :] = 1e200
    return with_broadcast(consensus, TensorMessage(consensus.broadcast.tensor, scalars))


def test_the_honest_game_opens_the_exact_sum_over_all_sites(liar: LyingAggregator) -> None:
    run = begun(liar, played=3)
    for round, total in run.sums.items():
        true, opening = run.true_updates(run.history[: round + 1]), run.opening(run.opened[round])
        layout, exponents = (
            opening.layout,
            lifted(opening.layout, opening.exponents, len(opening.misfits), run.spec.precision),
        )
        sent = [encode(update, layout, exponents, len(NAMES), run.spec.precision) for update in true.values()]
        expected = decode(np.sum(sent, axis=0), layout, exponents, len(NAMES), run.spec.precision)
        assert np.allclose(total.numbers, expected, rtol=0.0, atol=1e-12)


def test_sites_that_are_told_huge_scales_send_nothing_and_the_one_told_the_truth_stays_masked(
    liar: LyingAggregator,
) -> None:
    run = begun(liar, played=2)
    true, huge = run.announcement(), run.announcement(huge_scales(run.consensus))
    watch, after = Watch(run), run.open(dict.fromkeys(OTHERS, huge) | {VICTIM: true})
    alone = {VICTIM: run.answer(VICTIM, true, after)}
    for name in OTHERS:
        watch.refusal(name, "ImplausibleConsensus")
    assert refused(huge, liar, after) == list(OTHERS)
    assert_nothing_learned(run, true, alone, run.true_updates([*run.history, run.consensus]))


def shuffled_memory(opened: pb.RoundOpened) -> None:
    opened.memory_sha256 = bytes(reversed(opened.memory_sha256))


def other_previous_sum(opened: pb.RoundOpened) -> None:
    opened.previous_sum = bytes(reversed(opened.previous_sum))


def larger_exponents(opened: pb.RoundOpened) -> None:
    opened.exponents[:] = [exponent + 1 for exponent in opened.exponents]


def other_stage(opened: pb.RoundOpened) -> None:
    opened.stage = "refine"


@pytest.mark.parametrize("lie", [shuffled_memory, other_previous_sum, larger_exponents, other_stage])
def test_whatever_one_site_is_told_differently_its_update_stays_masked(
    liar: LyingAggregator, lie: Callable[[pb.RoundOpened], None]
) -> None:
    run = begun(liar, played=2)
    true = run.announcement()
    watch, after = Watch(run), run.open(dict.fromkeys(OTHERS, true) | {VICTIM: changed(true, lie)})
    answers = sent_answers(run, true, watch, after)
    assert set(OTHERS) <= set(answers)
    assert_nothing_learned(run, true, answers, run.true_updates([*run.history, run.consensus]))


@pytest.mark.parametrize("step", ["scalars", "tensor"])
def test_one_bit_of_another_consensus_leaves_every_update_masked(liar: LyingAggregator, step: str) -> None:
    run = begun(liar, played=2)
    tensor, scalars = run.consensus.broadcast.tensor.copy(), run.consensus.broadcast.scalars.copy()
    if step == "tensor":
        tensor[0, 0] = np.nextafter(tensor[0, 0], 2.0)
    else:
        scalars[-1] = np.nextafter(scalars[-1], 2.0)
    true, other = run.announcement(), run.announcement(with_broadcast(run.consensus, TensorMessage(tensor, scalars)))
    watch, after = Watch(run), run.open(dict.fromkeys(OTHERS, other) | {VICTIM: true})
    answers = sent_answers(run, true, watch, after)
    assert_nothing_learned(run, true, answers, run.true_updates([*run.history, run.consensus]))


def test_a_roster_without_a_member_is_refused_before_a_share_is_sealed(liar: LyingAggregator) -> None:
    run = FixedCohortPlay(liar, NAMES)
    run.enrol()
    keys, watch = wire.roster_to_wire(run.collect_adverts()), Watch(run)
    smaller = pb.RosterClosed(keys=[key for key in keys if key.participant != VICTIM])
    for name in OTHERS:
        run.tell(name, roster_closed=smaller)
    for name in OTHERS:
        watch.refusal(name, "IncompleteCohort")
    assert not [one for one in liar.calls("ShareGroupSecret") if one.request.run_id == run.run_id]

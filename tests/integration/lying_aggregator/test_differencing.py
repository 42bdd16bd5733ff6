"""Attack 2: sums that differ by one site, within a run and between runs."""

from __future__ import annotations

import pytest

from dcfpca.v1 import rounds_pb2 as pb
from tests.support.hostile.attacked_sites import (
    NAMES,
    OTHERS,
    VICTIM,
    Watch,
    assert_nothing_learned,
    at_round,
    begun,
    refused,
    sent_answers,
    settled,
)
from tests.support.hostile.lying_aggregator import LyingAggregator, run_of
from tests.support.hostile.played_run import changed
from tests.support.hostile.secure_play import FixedCohortPlay


@pytest.mark.parametrize("status", ["finished", "aborted", "failed"])
def test_nothing_is_answered_in_the_same_breath_as_the_end_of_a_run_or_later(
    liar: LyingAggregator, status: str
) -> None:
    run = begun(liar, played=2)
    again = run.announcement()
    run.play_round()
    for _ in ("at once", "later"):
        run.finish(status)
        after = run.open({name: changed(again, next_attempt) for name in OTHERS})
        settled(run, OTHERS)
        assert refused(changed(again, next_attempt), liar, after) == list(NAMES)


def next_attempt(opened: pb.RoundOpened) -> None:
    opened.ref.attempt += 1


def test_a_round_with_a_smaller_cohort_is_not_answered(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    smaller = changed(run.announcement(), lambda told: told.cohort.remove(VICTIM))
    watch, after = Watch(run), run.open(dict.fromkeys(OTHERS, smaller))
    for name in OTHERS:
        watch.refusal(name)
    assert refused(smaller, liar, after) == list(NAMES)


def test_no_second_key_is_advertised_for_a_smaller_cohort(liar: LyingAggregator) -> None:
    run = begun(liar, played=1)
    watch, after = Watch(run), len(liar.heard)
    for name in OTHERS:
        run.tell(name, run_key_wanted=pb.RunKeyWanted(spec_sha256=run.spec.digest(), cohort=OTHERS))
    for name in OTHERS:
        watch.refusal(name)
    assert not [one for one in liar.heard[after:] if one.call == "AdvertiseRunKey"]


def test_the_same_consensus_under_the_next_number_leaves_the_missing_site_masked(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    before = run.consensus
    run.play_round()
    again = run.announcement(at_round(before, before.round + 1))
    watch, after = Watch(run), run.open(dict.fromkeys(OTHERS, again))
    answers = sent_answers(run, again, watch, after, OTHERS)
    true = run.true_updates([*run.history, at_round(before, before.round + 1)])
    assert_nothing_learned(run, again, answers, true)


def test_an_opened_round_is_not_opened_again_with_another_consensus(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    first = run.announcement()
    run.play_round()
    again = changed(first, lambda told: told.exponents.__setitem__(0, told.exponents[0] + 1))
    after = run.open(again)
    settled(run)
    assert refused(again, liar, after) == list(NAMES)


def test_a_second_run_without_one_site_needs_a_person_at_every_other_site_who_is_told_run_and_member(
    liar: LyingAggregator,
) -> None:
    first = begun(liar, played=3)
    first.finish()
    for name in NAMES:
        liar.federation.processes[name].await_action("results_written", run=first.run_id)
    second = FixedCohortPlay(liar, OTHERS)
    second.propose()
    for name in OTHERS:
        asked = liar.federation.processes[name].await_action("approval_awaited", run=second.run_id)
        assert VICTIM in asked["reason"]
        assert any(run in asked["reason"] for run in run_ids(liar))
    watch = Watch(second)
    for name in OTHERS:
        second.tell(name, run_key_wanted=pb.RunKeyWanted(spec_sha256=second.spec.digest(), cohort=OTHERS))
        watch.refusal(name)
    assert not [one for one in liar.heard if run_of(one.request) == second.run_id]


def test_the_same_cohort_may_compute_again(liar: LyingAggregator) -> None:
    begun(liar, played=1).finish()
    assert all(answer.accept for answer in FixedCohortPlay(liar, NAMES).enrol().values())


def run_ids(liar: LyingAggregator) -> set[str]:
    return {one.request.run_id for one in liar.calls("Respond")}

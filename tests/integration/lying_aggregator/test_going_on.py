"""A lying aggregator against real daemons in runs with `dropouts = "go-on"`, which every site here allows."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
import pytest

from dcfpca import dropout_recovery_wire, secagg
from dcfpca.rpca.method import TensorMessage
from dcfpca.v1 import rounds_pb2 as pb
from tests.support.attacked_sites import (
    NAMES,
    OTHERS,
    VICTIM,
    Watch,
    at_round,
    found_on_disk,
    refused,
    restart,
    settled,
    state_of,
    turned,
    with_broadcast,
)
from tests.support.dropout_play import DropoutPlay
from tests.support.lying_aggregator import LyingAggregator
from tests.support.played_run import changed


def begun(liar: LyingAggregator, played: int = 2, **spec: object) -> DropoutPlay:
    """A run in which so many rounds were honestly summed."""
    run = DropoutPlay(liar, NAMES, **spec)
    assert all(answer.accept for answer in run.enrol().values())
    for _ in range(played):
        run.play_round()
    return run


def test_huge_values_that_would_round_other_updates_to_zero_are_refused(liar: LyingAggregator) -> None:
    run = begun(liar)
    scalars = np.full_like(run.consensus.broadcast.scalars, 1e200)
    huge = with_broadcast(run.consensus, TensorMessage(run.consensus.broadcast.tensor, scalars))
    watch, opened = Watch(run), run.announcement(huge)
    after = run.open(dict.fromkeys(OTHERS, opened))
    for name in OTHERS:
        watch.refusal(name)
    assert not [one for one in liar.heard[after:] if one.call in ("StateBound", "ShareKeys", "SubmitUpdate")]


def test_keys_of_a_site_that_was_told_another_consensus_are_refused(liar: LyingAggregator) -> None:
    run = begun(liar)
    true, other = run.announcement(), run.announcement(turned(run.consensus, 1e-6))
    watch, after = Watch(run), run.open(dict.fromkeys(OTHERS, other) | {VICTIM: true})
    adverts = {}
    for name in NAMES:
        heard = liar.await_call("AdvertiseKeys", name, run.run_id, after)
        adverts[name] = dropout_recovery_wire.advert_from_wire(heard.request.keys)
    bindings = {name: advert.binding for name, advert in adverts.items()}
    assert bindings[VICTIM] not in [bindings[name] for name in OTHERS]
    closed = secagg.close_roster(run.context(true), adverts.values())
    run.tell(VICTIM, keys_relayed=dropout_recovery_wire.roster_to_wire(true.ref, secagg.roster_for(closed, VICTIM)))
    watch.refusal(VICTIM, "ReplayedKey")
    assert not [one for one in liar.heard[after:] if one.call in ("ShareKeys", "SubmitUpdate") and one.site == VICTIM]


@pytest.mark.parametrize("status", ["finished", "aborted"])
def test_a_round_is_not_opened_again_without_a_site_once_the_run_is_over(liar: LyingAggregator, status: str) -> None:
    run = begun(liar)
    opened = run.announcement(attempt=2)
    run.play_round()
    run.finish(status, OTHERS)
    after = run.open(dict.fromkeys(OTHERS, opened))
    settled(run, OTHERS)
    assert refused(opened, liar, after) == list(NAMES)


def test_the_cohort_does_not_shrink_between_attempts(liar: LyingAggregator) -> None:
    run = begun(liar)
    run.mask(run.announcement())
    smaller = changed(run.announcement(attempt=2), lambda told: told.cohort.remove(VICTIM))
    watch, after = Watch(run), run.open(dict.fromkeys(OTHERS, smaller))
    for name in OTHERS:
        watch.refusal(name)
    assert refused(smaller, liar, after) == list(NAMES)


def test_no_bound_is_stated_beyond_the_last_round_of_the_spec(liar: LyingAggregator) -> None:
    run = begun(liar, played=2, rounds=2)
    beyond = run.announcement(at_round(run.consensus, 3))
    watch, after = Watch(run), run.open(beyond)
    for name in NAMES:
        watch.refusal(name)
    assert not [one for one in liar.heard[after:] if one.call in ("AdvertiseKeys", "ShareKeys", "StateBound")]


@pytest.mark.parametrize("rebooted", [False, True])
def test_neither_a_restart_nor_a_reboot_opens_a_round_for_other_survivors(
    liar: LyingAggregator, rebooted: bool
) -> None:
    run = begun(liar)
    attempt = run.mask(run.announcement())
    run.unmask(attempt, run.attest(attempt, NAMES))
    for name in OTHERS:
        restart(liar, name, rebooted=rebooted)
    again = run.mask(run.announcement(attempt=2), dict.fromkeys(OTHERS, run.announcement(attempt=2)))
    watch, after = Watch(run), len(liar.heard)
    for name in OTHERS:
        run.tell(name, survivors_announced=pb.SurvivorsAnnounced(ref=again.opened.ref, survivors=OTHERS))
    for name in OTHERS:
        watch.refusal(name, "DifferencedSum")
    assert not [one for one in liar.heard[after:] if one.call in ("AttestSurvivors", "Unmask")]


def test_a_consensus_is_not_opened_again_under_the_next_number_without_a_site(liar: LyingAggregator) -> None:
    run = begun(liar)
    before = run.consensus
    run.play_round()
    opened = run.announcement(at_round(before, before.round + 1))
    again = run.mask(opened, dict.fromkeys(OTHERS, opened))
    watch, after = Watch(run), len(liar.heard)
    for name in OTHERS:
        run.tell(name, survivors_announced=pb.SurvivorsAnnounced(ref=again.opened.ref, survivors=OTHERS))
    for name in OTHERS:
        watch.refusal(name, "DifferencedSum")
    assert not [one for one in liar.heard[after:] if one.call in ("AttestSurvivors", "Unmask")]


def test_the_stated_bound_is_the_same_for_updates_of_ordinary_size(liar: LyingAggregator) -> None:
    run = begun(liar, played=3)
    said = [one.request for one in liar.heard if one.call in ("ShareKeys", "StateBound")]
    mine = [one for one in said if one.ref.run_id == run.run_id and one.ref.round > 0]
    stated = {one.exponent for one in mine if not isinstance(one, pb.ShareKeysRequest) or one.HasField("exponent")}
    assert stated == {0}


def test_spent_seeds_are_in_no_file_of_the_state_directory(liar: LyingAggregator) -> None:
    run, spent = begun(liar, played=1), set[bytes]()
    for _ in range(2):
        spent |= seeds(run, VICTIM)
        run.play_round()
        present = seeds(run, VICTIM)
        assert present
        assert found_on_disk(liar, VICTIM, spent - present) == []
        spent |= present
    run.finish("aborted")
    liar.federation.processes[VICTIM].await_action("run_ended", run=run.run_id)
    assert found_on_disk(liar, VICTIM, spent) == []


def seeds(run: DropoutPlay, name: str) -> set[bytes]:
    """The seeds that a site holds now for this run."""
    with closing(sqlite3.connect(state_of(run.liar, name) / "state.db")) as database:
        query = "SELECT seed FROM seeds WHERE seed IS NOT NULL AND run_id = ?"
        return {row[0] for row in database.execute(query, (run.run_id,))}

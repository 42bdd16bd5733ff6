"""Attacks 4 to 6: what a site forgets, what it is made to say twice, and what its disk still knows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from dcfpca.secagg.errors import LostState
from dcfpca.secagg.state import NOTHING, SiteState, Step, from_record, to_record
from tests.support.hostile.attacked_sites import (
    NAMES,
    OTHERS,
    VICTIM,
    Watch,
    begun,
    found_on_disk,
    refused,
    restart,
    settled,
    state_of,
)
from tests.support.hostile.lying_aggregator import Heard, LyingAggregator, run_of
from tests.support.hostile.played_run import changed
from tests.support.hostile.secure_play import FixedCohortPlay

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("rebooted", [False, True])
def test_after_a_restart_or_a_reboot_a_round_gets_the_same_bytes_or_nothing(
    liar: LyingAggregator, rebooted: bool
) -> None:
    run = begun(liar, played=2)
    opened = run.announcement()
    first = run.answers(opened, run.open(opened))
    again = len(liar.heard)
    for name in OTHERS:
        restart(liar, name, rebooted=rebooted)
    for name in OTHERS:
        assert run.answer(name, opened, again).payload == first[name].payload
    other = changed(opened, lambda told: told.exponents.__setitem__(0, told.exponents[0] + 1))
    other.ref.attempt += 1
    watch, after = Watch(run), run.open(dict.fromkeys(OTHERS, other))
    for name in OTHERS:
        watch.refusal(name, "ChangedConsensus")
    assert refused(other, liar, after) == list(NAMES)


def test_a_restarted_site_accuses_nobody_of_not_holding_the_consensus_of_a_round_that_is_over(
    liar: LyingAggregator,
) -> None:
    run = begun(liar, played=2)
    del liar.consensus[run.run_id, 1, False]
    restarted = len(liar.heard)
    restart(liar, VICTIM)
    run.play_round()
    said = {one.call for one in liar.heard[restarted:] if one.site == VICTIM}
    assert not said & {"FetchConsensus", "Complain"}


def test_after_a_restart_an_earlier_round_and_an_ended_run_stay_closed(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    earlier, latest = (run.opened[round] for round in sorted(run.opened))
    before, restarted = run.answer(VICTIM, latest), len(liar.heard)
    restart(liar, VICTIM)
    run.open({VICTIM: earlier})
    settled(run, [VICTIM])
    for again in updates(run, VICTIM, restarted):
        assert (again.request.ref, again.payload) == (latest.ref, before.payload)
    run.finish("aborted")
    for name in NAMES:
        liar.federation.processes[name].await_action("run_ended", run=run.run_id)
    ended = len(liar.heard)
    restart(liar, VICTIM, rebooted=True)
    run.open({VICTIM: run.announcement()})
    settled(run, [VICTIM])
    assert updates(run, VICTIM, ended) == []


def updates(run: FixedCohortPlay, name: str, after: int) -> list[Heard]:
    """The updates that a site has sent in this run from place `after` of `heard` on."""
    sent = [one for one in run.liar.heard[after:] if (one.site, one.call) == (name, "SubmitUpdate")]
    return [one for one in sent if run_of(one.request) == run.run_id]


def test_a_site_restored_from_a_backup_says_the_same_bytes_again(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    back_up(liar, VICTIM)
    opened = run.announcement()
    first = run.answers(opened, run.open(opened))
    again = len(liar.heard)
    restore(liar, VICTIM)
    assert run.answer(VICTIM, opened, again).payload == first[VICTIM].payload


def test_a_site_restored_from_a_backup_with_other_data_does_not_answer_the_run_again(liar: LyingAggregator) -> None:
    run = begun(liar, played=2)
    back_up(liar, VICTIM)
    opened = run.announcement()
    run.answers(opened, run.open(opened))
    data = liar.federation.root / "sites" / VICTIM / "data.npy"
    true = np.load(data)
    try:
        np.save(data, true + 1.0)
        restore(liar, VICTIM)
        watch, after = Watch(run), run.open({VICTIM: opened})
        watch.refusal(VICTIM, "LostState")
        assert VICTIM in refused(opened, liar, after)
    finally:
        np.save(data, true)
        restart(liar, VICTIM)


def test_spent_keys_are_in_no_file_of_the_state_directory(liar: LyingAggregator) -> None:
    run = begun(liar, played=1)
    (held,) = records(run, VICTIM)
    assert held.step is Step.READY
    assert (held.private_key, held.own_share) == (NOTHING, NOTHING)
    spent = set(held.roots) - {NOTHING}
    for _ in range(2):
        run.play_round()
        assert found_on_disk(liar, VICTIM, spent) == []
        spent |= {root for state in records(run, VICTIM) for root in state.roots} - {NOTHING}
    assert len(spent) == 3 * len(OTHERS)
    run.finish("aborted")
    liar.federation.processes[VICTIM].await_action("run_ended", run=run.run_id)
    assert found_on_disk(liar, VICTIM, spent | {held.group_secret}) == []


def records(run: FixedCohortPlay, name: str) -> list[SiteState]:
    """The different states of this run that a site's files hold."""
    return list({state.sequence: state for state in _records(run, name)}.values())


def _records(run: FixedCohortPlay, name: str) -> Iterator[SiteState]:
    binding = run.terms.binding
    empty = to_record(SiteState(binding, Step.READY, NOTHING, NOTHING, (NOTHING,) * len(run.names)))
    for path in state_of(run.liar, name).rglob("*"):
        whole = path.read_bytes() if path.is_file() else b""
        start = whole.find(empty[:8])
        while start >= 0:
            with suppress(LostState):
                yield from_record(whole[start : start + len(empty)], binding)
            start = whole.find(empty[:8], start + 1)


def back_up(liar: LyingAggregator, name: str) -> None:
    """Copy the state directory of a site while its daemon is down."""
    liar.federation.processes[name].kill()
    shutil.copytree(state_of(liar, name), state_of(liar, name).with_suffix(".backup"), dirs_exist_ok=True)
    liar.federation.start_site(name).await_action("connected")


def restore(liar: LyingAggregator, name: str) -> None:
    """Put the copy back in place and start the daemon on it."""
    liar.federation.processes[name].kill()
    shutil.rmtree(state_of(liar, name))
    shutil.move(state_of(liar, name).with_suffix(".backup"), state_of(liar, name))
    liar.federation.start_site(name).await_action("connected")

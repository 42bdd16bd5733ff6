"""A liar that sends too much, or too slowly: the daemon keeps its memory and goes on with other runs."""

from __future__ import annotations

import time

import pytest

from dcfpca.v1 import rounds_pb2 as pb
from tests.support.hostile.attacked_sites import VICTIM, Watch, begun
from tests.support.hostile.lying_aggregator import LyingAggregator
from tests.support.hostile.played_run import changed

pytestmark = pytest.mark.slow
GROWTH_KIB = 16 << 10
"""A quarter of what the liar sends, for numerics that a daemon still loads in its first rounds."""


def test_announcements_of_sixty_four_mebibytes_are_not_taken_and_other_runs_go_on(liar: LyingAggregator) -> None:
    site = liar.federation.processes[VICTIM]
    run, before = begun(liar, played=1), site.memory_kib()
    huge = changed(run.announcement(), lambda told: setattr(told, "inline_consensus", bytes(64 << 20)))
    for _ in range(4):  # gRPC keeps what it has read of each for as long as the connection lives
        lines, began = len(site.lines), time.monotonic()
        after = run.open({VICTIM: huge})
        site.await_action("message_too_large", after=lines)
        while time.monotonic() < began + 2.0:  # it comes again with every connection, and these not without end
            site.wait_briefly()
        assert len([one for one in liar.heard[after:] if one.call == "Subscribe"]) <= 6
        run.tell(VICTIM, standby=pb.Standby(reason="it comes no more"))
        site.await_action("connected", after=lines)
    assert site.memory_kib() <= before + GROWTH_KIB
    begun(liar, played=2)


def test_a_sum_of_sixty_four_mebibytes_ends_its_run_and_no_other(liar: LyingAggregator) -> None:
    site = liar.federation.processes[VICTIM]
    run, before = begun(liar, played=1), site.memory_kib()
    place = max(place for place in liar.sums if place[0] == run.run_id)
    header, payload = liar.sums[place]
    huge = pb.SumHeader()
    huge.CopyFrom(header)
    huge.memory = bytes(64 << 20)
    liar.sums_for[(VICTIM, *place)] = huge, payload
    watch = Watch(run)
    run.open({VICTIM: run.announcement()})
    assert "more in one message than a site accepts" in watch.refusal(VICTIM)["reason"]
    run.tell(VICTIM, standby=pb.Standby(reason="it comes no more"))
    assert site.memory_kib() <= before + GROWTH_KIB
    begun(liar, played=2)


def test_a_consensus_said_to_have_more_numbers_than_the_spec_is_not_fetched(liar: LyingAggregator) -> None:
    site = liar.federation.processes[VICTIM]
    run, before = begun(liar, played=1), site.memory_kib()

    def swell(told: pb.RoundOpened) -> None:
        told.ClearField("inline_consensus")
        told.consensus.rows = 1 << 31

    huge, watch = changed(run.announcement(), swell), Watch(run)
    after = run.open({VICTIM: huge})
    watch.refusal(VICTIM)
    assert not [one for one in liar.heard[after:] if (one.site, one.call) == (VICTIM, "FetchConsensus")]
    assert site.memory_kib() <= before + GROWTH_KIB
    begun(liar, played=1)


def test_a_sum_that_drips_holds_up_no_other_run_and_not_the_end_of_the_daemon(liar: LyingAggregator) -> None:
    run = begun(liar, played=1)
    liar.dripping.add(run.run_id)
    after = run.open({VICTIM: run.announcement()})
    liar.await_call("FetchSum", VICTIM, run.run_id, after)
    begun(liar, played=2)
    started = time.monotonic()
    assert liar.federation.processes[VICTIM].stop() == 0
    assert time.monotonic() - started < 15

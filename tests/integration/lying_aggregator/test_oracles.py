"""Attack 3: what a site says about the size of its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dcfpca.rpca.subspace.round_plan import RoundPlan
from dcfpca.v1 import rounds_pb2 as pb
from tests.support.hostile.attacked_sites import NAMES, VICTIM, Watch, begun, refused, with_broadcast
from tests.support.hostile.lying_aggregator import LyingAggregator
from tests.support.hostile.played_run import changed
from tests.support.hostile.secure_play import FixedCohortPlay, with_lift


def test_no_bound_is_stated_in_a_whole_run(liar: LyingAggregator) -> None:
    run = begun(liar, played=4)
    said = {one.call for one in liar.heard if of_run(one.request, run)}
    assert said <= {"Respond", "AdvertiseRunKey", "ShareGroupSecret", "SubmitUpdate", "FetchSum", "FetchConsensus"}


def of_run(request: object, run: FixedCohortPlay) -> bool:
    ref = getattr(request, "ref", request)
    return getattr(ref, "run_id", "") == run.run_id


def test_nothing_is_said_beyond_the_last_round_of_the_spec(liar: LyingAggregator) -> None:
    run = begun(liar, played=3)
    for round in (run.spec.last_round + 1, 2**31):
        beyond = changed(run.announcement(), numbered(round))
        watch, after = Watch(run), run.open(beyond)
        for name in NAMES:
            watch.refusal(name, "PastLastRound")
        assert refused(beyond, liar, after) == list(NAMES)


def numbered(round: int) -> Callable[[pb.RoundOpened], None]:
    def number(opened: pb.RoundOpened) -> None:
        opened.ref.round = round

    return number


def test_exponents_are_not_raised_for_a_misfit_that_nobody_signed(liar: LyingAggregator) -> None:
    run = begun(liar, played=1)
    forged = with_lift(run.announcement(), pb.Misfit(participant="ann", context=bytes(32), signature=bytes(70)))
    watch, after = Watch(run), run.open(forged)
    for name in NAMES:
        watch.refusal(name, "ChangedExponent")
    assert refused(forged, liar, after) == list(NAMES)


def test_how_the_announced_number_of_columns_compares_with_a_sites_own_is_not_told(liar: LyingAggregator) -> None:
    """Below its own number a site would refuse what it answers above: a search would find the number in ten tries."""
    run = begun(liar, played=1)
    own = liar.federation.data[VICTIM].shape[1]
    said = []
    for attempt, count in enumerate((own - 1, own + 1), start=1):
        plan = replace(RoundPlan.of(run.consensus.broadcast), columns=float(count))
        watch = Watch(run)
        run.open(run.announcement(with_broadcast(run.consensus, plan.broadcast()), attempt))
        said.append(watch.refusal(VICTIM)["kind"])
    assert said == ["WrongConsensus", "WrongConsensus"]

"""Attack 2 again, with two runs at once: both cohorts are settled before a sum over either is there to compare with."""

from __future__ import annotations

from collections.abc import Callable

from dcfpca.v1 import rounds_pb2 as pb
from tests.support.hostile.attacked_sites import NAMES, OTHERS, VICTIM, restart, settled
from tests.support.hostile.lying_aggregator import Heard, LyingAggregator
from tests.support.hostile.secure_play import FixedCohortPlay


def test_of_two_runs_set_up_side_by_side_the_one_without_a_site_gets_no_key(liar: LyingAggregator) -> None:
    """The first sums of both, of the same consensus over the same data, would differ by the update of that site."""
    whole, without = FixedCohortPlay(liar, NAMES), FixedCohortPlay(liar, OTHERS)
    for run in (whole, without):
        assert all(answer.accept for answer in run.enrol().values())
    whole.set_up()
    settled(whole)
    restart(liar, OTHERS[0])
    for name in OTHERS:
        without.tell(name, run_key_wanted=pb.RunKeyWanted(spec_sha256=without.spec.digest(), cohort=OTHERS))
    for name in OTHERS:
        (reason,) = liar.await_heard(_refusal(without, name)).request.reasons
        assert f"with {whole.run_id} it would give sums over {VICTIM} alone" in reason
    assert not [one for one in liar.calls("AdvertiseRunKey") if one.request.run_id == without.run_id]
    whole.play_round()
    assert len(whole.sums) == 1, "the run that was set up first goes on"


def _refusal(run: FixedCohortPlay, name: str) -> Callable[[Heard], bool]:
    def wanted(heard: Heard) -> bool:
        answer = heard.request
        return (heard.site, heard.call) == (name, "Respond") and answer.run_id == run.run_id and not answer.accept

    return wanted

"""The hybrid set-up under a liar: ciphertexts swapped, replayed or cut apart, and keys of another run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dcfpca.secagg.aggregator import shares_for
from dcfpca.secagg.keys import KEM_BYTES
from dcfpca.secagg.messages import Roster, SealedShare
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.wire import round_messages as wire
from tests.support.hostile.attacked_sites import NAMES, OTHERS, VICTIM, Watch, begun, refused
from tests.support.hostile.lying_aggregator import LyingAggregator
from tests.support.hostile.secure_play import FixedCohortPlay

Shares = list[SealedShare]
Lie = Callable[[Shares, Shares, Shares], Shares]


def with_sealed(shares: Shares, other: Callable[[int], bytes]) -> Shares:
    """The victim's shares with other bytes under the same signatures."""
    return [replace(one, sealed=other(place)) for place, one in enumerate(shares)]


def of_another_receiver(mine: Shares, others: Shares, _: Shares) -> Shares:
    """What the same members sealed for somebody else."""
    found = {one.sender: one.sealed for one in others}
    return with_sealed(mine, lambda place: found.get(mine[place].sender, mine[place].sealed))


def of_one_another(mine: Shares, _: Shares, __: Shares) -> Shares:
    """Each with the bytes that the next member sealed for the same receiver."""
    return with_sealed(mine, lambda place: mine[place - 1].sealed)


def of_another_run(_: Shares, __: Shares, earlier: Shares) -> Shares:
    """Whole messages of an earlier run of the same members, with their genuine signatures."""
    return earlier


def with_the_ciphertext_of_another_run(mine: Shares, _: Shares, earlier: Shares) -> Shares:
    """The encapsulated secret of an earlier run before the seal of this one."""
    cut = KEM_BYTES
    return with_sealed(mine, lambda place: earlier[place].sealed[:cut] + mine[place].sealed[cut:])


def with_one_bit_turned(mine: Shares, _: Shares, __: Shares) -> Shares:
    """ML-KEM answers any ciphertext with some secret: what is turned must show all the same."""
    return with_sealed(mine, lambda place: bytes([mine[place].sealed[0] ^ 1]) + mine[place].sealed[1:])


def twice_from_one(mine: Shares, _: Shares, __: Shares) -> Shares:
    """One member's share in the place of another's."""
    return [mine[0], mine[0], *mine[2:]]


def without_one(mine: Shares, _: Shares, __: Shares) -> Shares:
    return mine[1:]


def collected(run: FixedCohortPlay) -> Shares:
    """Everybody's shares, as they were sent."""
    heard = [run.liar.await_call("ShareGroupSecret", name, run.run_id) for name in NAMES]
    return [share for one in heard for share in wire.shares_from_wire(one.request.shares)]


def until_shares(liar: LyingAggregator) -> tuple[FixedCohortPlay, Shares]:
    run = FixedCohortPlay(liar, NAMES)
    assert all(answer.accept for answer in run.enrol().values())
    run.relay_roster(run.collect_adverts())
    return run, collected(run)


def told_of_shares(run: FixedCohortPlay, name: str, shares: Shares) -> None:
    keys, incoming = wire.roster_to_wire(run.roster), wire.shares_to_wire(shares)
    run.tell(name, group_shares_relayed=pb.GroupSharesRelayed(incoming=incoming, keys=keys))


@pytest.mark.parametrize(
    "lie",
    [
        of_another_receiver,
        of_one_another,
        of_another_run,
        with_the_ciphertext_of_another_run,
        with_one_bit_turned,
        twice_from_one,
        without_one,
    ],
)
def test_a_site_that_is_sent_other_ciphertexts_completes_no_set_up_and_every_update_stays_masked(
    liar: LyingAggregator, lie: Lie
) -> None:
    _, earlier = until_shares(liar)
    run, given = until_shares(liar)
    watch = Watch(run)
    mine, others, before = (list(shares_for(name, of)) for name, of in _views(given, earlier))
    told_of_shares(run, VICTIM, lie(mine, others, before))
    for name in OTHERS:
        told_of_shares(run, name, list(shares_for(name, given)))
    said = watch.refusal(VICTIM)
    assert said["kind"] in ("TamperedShare", "SwappedKey", "ReplayedKey", "IncompleteCohort", "BadMessage"), said
    opened = run.announcement()
    after = run.open(opened)
    sent = {name: run.answer(name, opened, after) for name in OTHERS}
    assert refused(opened, liar, after) == [VICTIM]
    assert set(sent) == set(OTHERS), "which stay masked by what they share with the victim"


def _views(given: Shares, earlier: Shares) -> tuple[tuple[str, Shares], ...]:
    return (VICTIM, given), (OTHERS[0], given), (VICTIM, earlier)


def test_the_ml_kem_key_of_another_run_or_member_in_the_roster_is_refused(liar: LyingAggregator) -> None:
    earlier = begun(liar, played=0)
    run = FixedCohortPlay(liar, NAMES)
    assert all(answer.accept for answer in run.enrol().values())
    honest = run.collect_adverts()
    adverts = list(honest.adverts)
    for other in (earlier.roster.adverts[0].kem_key, adverts[1].kem_key):
        watch = Watch(run)
        forged = Roster((replace(adverts[0], kem_key=other), *adverts[1:]))
        run.tell(VICTIM, roster_closed=pb.RosterClosed(keys=wire.roster_to_wire(forged)))
        assert watch.refusal(VICTIM)["kind"] in ("SwappedKey", "ReplayedKey")
    assert not [one for one in liar.calls("ShareGroupSecret", VICTIM) if one.request.run_id == run.run_id]

"""The set-up of a run: lies about the roster and the shares are refused by name, and nothing changes."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from dcfpca.secagg import errors
from dcfpca.secagg.aggregator import accept_advert, accept_shares, shares_for
from dcfpca.secagg.messages import Advert, Roster, check_complaint, complain
from dcfpca.secagg.set_up import (
    agreement_key,
    commitment,
    kem_key,
    kem_seed,
    open_share,
    roster_digest,
    seal_share,
)
from dcfpca.secagg.site import SecureSite
from dcfpca.secagg.state import Step
from tests.support.runs.masked_sums import close_roster
from tests.support.runs.secagg import identity_of, verify
from tests.support.runs.secure_relay import Relay, begin, entropy_of, opening_of, random_updates, terms_of

A, B, C = "site-0000", "site-0001", "site-0002"
SMALL_ORDER = [
    bytes(32),
    b"\x01" + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


def refuses(side: SecureSite, act: Callable[[], object], error: type[errors.SecureSumRefusal], who: str) -> None:
    before = side.record
    with pytest.raises(error) as caught:
        act()
    assert caught.value.accused == who
    assert side.record == before


def signed_advert(name: str, key: bytes | None = None, committed: bytes | None = None) -> Advert:
    """An advert of a member that keeps to the signature and to nothing else."""
    made = begin(terms_of(3), name).advert()
    changed = replace(made, key=key or made.key, commitment=committed or made.commitment)
    return replace(changed, signature=identity_of(name).sign(changed.statement()))


def with_advert(advert: Advert) -> Roster:
    relay = Relay(terms_of(3))
    relay.advertise()
    return Roster(tuple(advert if other.name == advert.name else other for other in relay.roster.adverts))


def test_everybody_arrives_at_the_same_group_secret_and_keeps_no_private_key() -> None:
    relay = Relay(terms_of(5)).set_up()
    assert len({side.state.group_secret for side in relay.sides.values()}) == 1
    for name, side in relay.sides.items():
        entropy = entropy_of(relay.terms, name)
        assert entropy[:32] not in side.record
        assert entropy[32:] not in side.record
        assert side.state.step is Step.READY


@pytest.mark.parametrize("left_out", [A, B])
def test_a_roster_that_lacks_a_member_is_refused(left_out: str) -> None:
    relay = Relay(terms_of(3))
    relay.advertise()
    fewer = Roster(tuple(advert for advert in relay.roster.adverts if advert.name != left_out))
    refuses(relay.sides[A], lambda: relay.sides[A].share(fewer), errors.IncompleteCohort, "")
    with pytest.raises(errors.IncompleteCohort, match=left_out):
        close_roster(relay.terms, {name: one for name, one in relay.adverts.items() if name != left_out}, verify)


def test_a_roster_with_a_stranger_twice_a_member_or_out_of_order_is_refused() -> None:
    relay = Relay(terms_of(3))
    adverts = relay.advertise().adverts
    stranger = begin(terms_of(4), "site-0003").advert()
    for false in ((*adverts, stranger), (*adverts, adverts[2]), adverts[::-1], ()):
        refuses(relay.sides[A], partial(relay.sides[A].share, Roster(false)), errors.IncompleteCohort, "")


@pytest.mark.parametrize("key", SMALL_ORDER)
def test_a_key_of_small_order_is_refused_at_intake_and_by_every_site_and_its_owner_named(key: bytes) -> None:
    side, advert = begin(terms_of(3), A), signed_advert(B, key=key)
    refuses(side, lambda: side.share(with_advert(advert)), errors.SwappedKey, B)
    with pytest.raises(errors.SwappedKey, match=B):
        accept_advert(side.terms, {}, advert, verify)


def test_a_key_that_stands_under_two_names_or_as_its_own_commitment_is_refused() -> None:
    side, key_of_a = begin(terms_of(3), A), begin(terms_of(3), A).advert().key
    for advert in (signed_advert(B, key=key_of_a), signed_advert(B, committed=key_of_a)):
        refuses(side, partial(side.share, with_advert(advert)), errors.ReplayedKey, B)
        with pytest.raises(errors.ReplayedKey):
            accept_advert(side.terms, {A: begin(terms_of(3), A).advert()}, advert, verify)
    twice = signed_advert(B, committed=begin(terms_of(3), B).advert().key)
    with pytest.raises(errors.ReplayedKey):
        accept_advert(side.terms, {}, twice, verify)


def test_a_key_that_its_owner_did_not_sign_or_signed_for_another_run_is_refused() -> None:
    side, honest = begin(terms_of(3), A), begin(terms_of(3), B).advert()
    swapped = replace(honest, key=begin(terms_of(3), B, "other").advert().key)
    refuses(side, lambda: side.share(with_advert(swapped)), errors.SwappedKey, "")
    foreign = replace(honest, certificate=identity_of(B, "elsewhere").certificate)
    refuses(side, lambda: side.share(with_advert(foreign)), errors.InventedParticipant, "")
    for elsewhere in (
        terms_of(3, run="run-2"),
        terms_of(4),
        terms_of(3, spec_digest=b"\x01" * 32),
        terms_of(3, last_round=9),
        terms_of(3, precision=32),
    ):
        replayed = begin(elsewhere, B).advert()
        refuses(side, partial(side.share, with_advert(replayed)), errors.ReplayedKey, B)


def test_ones_own_key_in_the_roster_must_be_the_one_advertised() -> None:
    side = begin(terms_of(3), A)
    refuses(side, lambda: side.share(with_advert(begin(terms_of(3), A, "other").advert())), errors.SwappedKey, "")


def test_a_second_advert_of_a_member_that_lost_its_keys_is_refused_by_the_aggregator() -> None:
    relay = Relay(terms_of(3))
    relay.advertise()
    accept_advert(relay.terms, relay.adverts, relay.adverts[B], verify)
    with pytest.raises(errors.ReplayedKey, match=B):
        accept_advert(relay.terms, relay.adverts, begin(relay.terms, B, "other").advert(), verify)


def test_a_second_roster_is_refused_and_the_same_one_again_gives_shares_that_say_the_same() -> None:
    relay = Relay(terms_of(3))
    relay.advertise()
    side = relay.sides[A]
    first = side.share(relay.roster)
    other = with_advert(begin(terms_of(3), B, "other").advert())
    refuses(side, lambda: side.share(other), errors.ChangedRoster, "")
    refuses(side, lambda: side.complete(other, relay.shares), errors.ChangedRoster, "")
    restored = SecureSite.restore(relay.terms, identity_of(A), side.record)
    again = restored.share(relay.roster)
    assert again != first  # an encapsulation is drawn anew each time
    third = relay.sides[relay.terms.cohort[2]].share(relay.roster)
    relay.sides[B].share(relay.roster)
    ended = []
    for shares in (first, again):
        receiver = SecureSite.restore(relay.terms, identity_of(B), relay.sides[B].record)
        receiver.complete(relay.roster, shares_for(B, (*shares, *third)))
        ended.append(receiver.state)
    assert ended[0] == ended[1]


def test_sites_that_were_shown_different_rosters_do_not_complete_the_set_up() -> None:
    relay = Relay(terms_of(3))
    relay.advertise()
    other = with_advert(begin(terms_of(3), C, "other").advert())
    to_a = [*relay.sides[B].share(other), *relay.sides[C].share(relay.roster)]
    relay.sides[A].share(relay.roster)
    act = lambda: relay.sides[A].complete(relay.roster, shares_for(A, to_a))  # noqa: E731
    refuses(relay.sides[A], act, errors.TamperedShare, "")


def test_shares_that_are_missing_crossed_or_bent_on_their_way_are_refused_and_accuse_no_member() -> None:
    relay = Relay(terms_of(3))
    relay.advertise()
    relay.share()
    side, mine = relay.sides[A], shares_for(A, relay.shares)
    bent = replace(mine[0], sealed=mine[0].sealed[:-1] + bytes([mine[0].sealed[-1] ^ 1]))
    for shares in (mine[:1], shares_for(B, relay.shares), (bent, mine[1]), (replace(mine[0], sealed=b""), mine[1])):
        refuses(side, partial(side.complete, relay.roster, shares), errors.TamperedShare, "")
    side.complete(relay.roster, mine)
    refuses(side, lambda: side.complete(relay.roster, mine), errors.OutOfTurn, "")
    refuses(side, lambda: side.share(relay.roster), errors.OutOfTurn, "")


def test_a_member_that_signs_a_share_it_did_not_commit_to_is_named() -> None:
    relay = Relay(terms_of(3))
    relay.advertise()
    relay.share()
    side, digest, mine = relay.sides[A], roster_digest(relay.terms, relay.roster), shares_for(A, relay.shares)
    agreement, receiver, sign = relay.sides[B].state.roots[0], relay.roster.adverts[0], identity_of(B).sign
    foreign = replace(receiver, kem_key=relay.roster.adverts[2].kem_key)
    for wrong in (
        seal_share(digest, agreement, B, receiver, (bytes(32), bytes(32)), sign),
        seal_share(digest, bytes(32), B, receiver, (bytes(32), bytes(32)), sign),
        seal_share(digest, agreement, B, foreign, (bytes(32), bytes(32)), sign),
    ):
        act = lambda wrong=wrong: side.complete(relay.roster, (wrong, mine[1]))  # noqa: E731
        refuses(side, act, errors.TamperedShare, B)


def test_the_aggregator_refuses_shares_that_are_not_one_for_everybody_else() -> None:
    relay = Relay(terms_of(3))
    relay.advertise()
    shares, digest = relay.sides[A].share(relay.roster), roster_digest(relay.terms, relay.roster)
    key = verify(relay.adverts[A].certificate, A)
    accept_shares(digest, relay.terms.cohort, A, key, shares)
    for wrong in (
        shares[:1],
        (shares[0], shares[0]),
        (replace(shares[0], sender=B), shares[1]),
        (replace(shares[0], sealed=bytes(48)), shares[1]),
        (replace(shares[0], sealed=bytes(1 << 16)), shares[1]),
    ):
        with pytest.raises(errors.TamperedShare):
            accept_shares(digest, relay.terms.cohort, A, key, wrong)


def test_no_round_is_answered_before_the_set_up_is_complete() -> None:
    relay = Relay(terms_of(3))
    side, update = relay.sides[A], random_updates([A])[A]
    refuses(side, lambda: side.answer(opening_of(), update), errors.OutOfTurn, "")
    relay.advertise()
    refuses(side, lambda: side.complete(relay.roster, ()), errors.OutOfTurn, "")
    relay.share()
    refuses(side, lambda: side.answer(opening_of(), update), errors.OutOfTurn, "")
    refuses(side, side.advert, errors.OutOfTurn, "")


def test_a_complaint_is_signed_and_names_whom_and_why() -> None:
    side = begin(terms_of(3), A)
    with pytest.raises(errors.SwappedKey) as caught:
        side.share(with_advert(signed_advert(B, key=bytes(32))))
    complaint = complain(side.terms, identity_of(A), caught.value)
    check_complaint(side.terms, complaint, verify)
    assert (complaint.author, complaint.accused, complaint.error) == (A, B, "SwappedKey")
    assert B in complaint.sentence
    for false, error in (
        (replace(complaint, accused=C), errors.SwappedKey),
        (replace(complaint, author=C, certificate=identity_of(C).certificate), errors.SwappedKey),
        (replace(complaint, accused="stranger"), errors.InventedParticipant),
    ):
        with pytest.raises(error):
            check_complaint(side.terms, false, verify)
    with pytest.raises(errors.SwappedKey):
        check_complaint(terms_of(3, run="run-2"), complaint, verify)


def test_a_commitment_says_nothing_that_another_run_or_name_would_share() -> None:
    share = bytes(range(32))
    assert len({commitment(one, name, share) for one in (bytes(32), b"\x01" * 32) for name in (A, B)}) == 4


def test_one_broken_half_of_the_keys_opens_no_share() -> None:
    """Whoever breaks X25519 has every agreement, whoever breaks ML-KEM every carried secret: neither has the other."""
    relay = Relay(terms_of(3))
    relay.advertise()
    relay.share()
    (sent, _), receiver = shares_for(A, relay.shares), relay.sides[A].state
    agreement, own, stranger = receiver.roots[1], kem_key(receiver.private_key), kem_key(bytes(32))
    binding, committed = relay.terms.binding, relay.roster.adverts[1].commitment
    share, part = open_share(sent, agreement, own, binding, committed)
    assert (len(share), len(part)) == (32, 32)
    for known in ((agreement, stranger), (bytes(32), own)):
        with pytest.raises(errors.TamperedShare):
            open_share(sent, *known, binding, committed)


def test_the_ml_kem_key_does_not_follow_from_the_x25519_key_and_is_gone_after_the_set_up() -> None:
    relay = Relay(terms_of(3))
    relay.advertise()
    seed = relay.sides[A].state.private_key
    relay.share()
    assert relay.sides[A].state.private_key == kem_seed(seed)  # the seed of both is gone with the X25519 key
    assert kem_seed(agreement_key(seed).private_bytes_raw()) != kem_seed(seed)
    relay.complete()
    assert relay.sides[A].state.private_key == bytes(32)

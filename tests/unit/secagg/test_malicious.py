"""An aggregator that lies: each attack fails closed, with its own name, at the honest participants."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dcfpca import secagg
from dcfpca.errors import BadMessage
from dcfpca.secagg import errors, masks, ring_fixed_point
from dcfpca.secagg.dropout_recovery import pairwise_keys, unmask
from dcfpca.secagg.dropout_recovery.messages import agreement_digest
from tests.support.secagg import (
    Attempt,
    certificate,
    context_of,
    identity_of,
    random_vectors,
    seed_of,
    site_names,
    two_thirds,
    verify,
)

A, B, C = site_names(3)


def attempt(step: str, count: int = 5, **changes: object) -> Attempt:
    context = context_of(count, **changes)
    return Attempt(context, random_vectors(context, 8)).run_to(step)


def refuses(side: secagg.ParticipantSide, act: Callable[[], object], error: type[BadMessage]) -> None:
    """The act is refused by this name, with a sentence, and the side is as it was before."""
    before = side.pinned
    with pytest.raises(error) as caught:
        act()
    assert type(caught.value) is error
    assert str(caught.value)
    assert side.pinned == before


def with_advert(made: Attempt, advert: secagg.Advert) -> secagg.Roster:
    """The roster for A in which one advert replaces that of the same name, with a root made to fit."""
    adverts = {**made.closed.adverts, advert.name: advert}
    cohort = tuple({*made.context.cohort, advert.name})
    wider = replace(made.context, cohort=cohort, threshold=two_thirds(len(cohort)))
    return secagg.roster_for(secagg.close_roster(wider, adverts.values()), A)


def test_an_invented_participant_outside_the_cohort_is_refused() -> None:
    made = attempt("advertise")
    stranger = secagg.ParticipantSide(made.context, identity_of("stranger"), bytes(32)).advertise()
    roster = with_advert(made, stranger)
    refuses(made.sides[A], lambda: made.sides[A].share(roster), errors.InventedParticipant)


def test_a_participant_with_a_certificate_of_another_authority_is_refused() -> None:
    made = attempt("advertise")
    forged = secagg.ParticipantSide(made.context, identity_of(B, authority="elsewhere"), bytes(32)).advertise()
    refuses(made.sides[A], lambda: made.sides[A].share(with_advert(made, forged)), errors.InventedParticipant)


def test_a_participant_under_the_certificate_of_another_one_is_refused() -> None:
    made = attempt("advertise")
    borrowed = replace(made.sides[B].advertise(), certificate=certificate(C))
    refuses(made.sides[A], lambda: made.sides[A].share(with_advert(made, borrowed)), errors.InventedParticipant)


def test_a_member_listed_twice_is_refused() -> None:
    made = attempt("advertise")
    roster = secagg.roster_for(made.closed, A)
    twice = replace(roster, members=(*roster.members[:2], *roster.members[1:]))
    refuses(made.sides[A], lambda: made.sides[A].share(twice), errors.InventedParticipant)


@pytest.mark.parametrize("field", ["seal_key", "mask_key", "commitment"])
def test_a_swapped_key_of_a_peer_is_refused(field: str) -> None:
    made = attempt("advertise")
    other = secagg.ParticipantSide(made.context, identity_of(B), b"\x09" * 32).advertise()
    swapped = replace(made.sides[B].advertise(), **{field: getattr(other, field)})
    refuses(made.sides[A], lambda: made.sides[A].share(with_advert(made, swapped)), errors.SwappedKey)


def test_ones_own_swapped_keys_are_refused() -> None:
    made = attempt("advertise")
    other = secagg.ParticipantSide(made.context, identity_of(A), b"\x09" * 32).advertise()
    refuses(made.sides[A], lambda: made.sides[A].share(with_advert(made, other)), errors.SwappedKey)


def test_a_root_that_ones_own_keys_did_not_go_into_is_refused() -> None:
    made = attempt("advertise")
    other = secagg.ParticipantSide(made.context, identity_of(A), b"\x09" * 32).advertise()
    foreign = with_advert(made, other)
    roster = replace(secagg.roster_for(made.closed, A), root=foreign.root)
    refuses(made.sides[A], lambda: made.sides[A].share(roster), errors.SwappedKey)


@pytest.mark.parametrize(
    "elsewhere",
    [{"run": "run-0"}, {"round": 2}, {"attempt": 0}, {"spec_digest": b"\x01" * 32}, {"precision": 32}],
    ids=lambda change: next(iter(change)),
)
def test_keys_replayed_from_elsewhere_are_refused(elsewhere: dict[str, object]) -> None:
    made = attempt("advertise")
    then = context_of(5, **elsewhere)
    replayed = secagg.ParticipantSide(then, identity_of(B), seed_of(then, B)).advertise()
    refuses(made.sides[A], lambda: made.sides[A].share(with_advert(made, replayed)), errors.ReplayedKey)
    relabelled = replace(replayed, binding=made.context.binding)
    refuses(made.sides[A], lambda: made.sides[A].share(with_advert(made, relabelled)), errors.SwappedKey)


def test_one_participants_keys_under_two_names_are_refused() -> None:
    made = attempt("advertise")
    roster = secagg.roster_for(made.closed, A)
    copied = replace(made.closed.adverts[B], name=C)
    adverts = tuple(copied if advert.name == C else advert for advert in roster.adverts)
    refuses(made.sides[A], lambda: made.sides[A].share(replace(roster, adverts=adverts)), errors.ReplayedKey)


def test_a_roster_smaller_than_the_sites_policy_is_refused() -> None:
    strict = context_of(5, min_cohort=5)
    made = Attempt(context_of(5), random_vectors(strict, 8))
    made.advertise(site_names(4))
    side = secagg.ParticipantSide(strict, identity_of(A), seed_of(strict, A))
    refuses(side, lambda: side.share(secagg.roster_for(made.closed, A)), errors.CohortTooSmall)


def test_masking_participants_or_survivors_fewer_than_policy_are_refused() -> None:
    made = attempt("mask", min_cohort=5)
    side = made.sides[A]
    few = replace(made.delivery(A), agreement=replace(made.agreement, members=site_names(4)))
    refuses(side, lambda: side.agree(few), errors.CohortTooSmall)
    refuses(side, lambda: side.attest(secagg.Survivors(site_names(4))), errors.CohortTooSmall)


def test_rosters_and_survivors_below_the_threshold_are_refused() -> None:
    made = attempt("mask", threshold=5)
    side = made.sides[A]
    roster = replace(secagg.roster_for(made.closed, A), members=site_names(4))
    refuses(side, lambda: side.share(roster), errors.BelowThreshold)
    refuses(side, lambda: side.attest(secagg.Survivors(site_names(4))), errors.BelowThreshold)


def test_a_second_roster_in_one_attempt_is_refused() -> None:
    made = attempt("share")
    smaller = secagg.close_roster(made.context, [made.closed.adverts[name] for name in site_names(4)])
    refuses(made.sides[A], lambda: made.sides[A].share(secagg.roster_for(smaller, A)), errors.ChangedRoster)


def test_a_second_set_of_masking_participants_is_refused() -> None:
    made = attempt("mask")
    members = made.agreement.members[:-1]
    again = secagg.delivery_for(replace(made.agreement, members=members), A, made.shares)
    refuses(made.sides[A], lambda: made.sides[A].agree(again), errors.ChangedAgreement)


@pytest.mark.parametrize("change", [-1, -40, 2000])
def test_an_exponent_that_clips_or_is_out_of_range_is_refused(change: int) -> None:
    made = attempt("agree")
    side = made.sides[A]
    exponent = made.bounds[A] + change
    wrong = replace(made.delivery(A), agreement=replace(made.agreement, exponent=exponent))
    refuses(side, lambda: side.agree(wrong), errors.ChangedExponent)


def test_an_exponent_changed_after_masking_is_refused() -> None:
    made = attempt("mask")
    wrong = replace(made.delivery(A), agreement=replace(made.agreement, exponent=made.agreement.exponent + 1))
    refuses(made.sides[A], lambda: made.sides[A].agree(wrong), errors.ChangedExponent)


def test_an_exponent_told_differently_to_one_site_opens_nothing() -> None:
    made = attempt("agree")
    for name in made.context.cohort:
        shift = 1 if name == A else 0
        changed = replace(made.agreement, exponent=made.agreement.exponent + shift)
        made.sides[name].agree(secagg.delivery_for(changed, name, made.shares))
        made.masked[name] = made.sides[name].mask(made.vectors[name])
    made.survivors = secagg.close_survivors(made.closed, made.agreement, made.masked)
    attestation = made.sides[A].attest(made.survivors)
    with pytest.raises(errors.InconsistentSurvivors):
        secagg.accept_attestation(made.closed, made.agreement, made.survivors, attestation, verify)
    honest = {name: made.sides[name].attest(made.survivors) for name in made.context.cohort}
    request = secagg.request_for(made.closed, made.survivors, B, honest)
    refuses(made.sides[B], lambda: made.sides[B].reveal(request), errors.InconsistentSurvivors)


def test_a_tampered_share_is_refused() -> None:
    made = attempt("agree")
    delivery = made.delivery(A)
    first = delivery.shares[0]
    bent = replace(first, sealed=bytes([first.sealed[0] ^ 1]) + first.sealed[1:])
    refuses(
        made.sides[A],
        lambda: made.sides[A].agree(replace(delivery, shares=(bent, *delivery.shares[1:]))),
        errors.TamperedShare,
    )


def test_shares_crossed_between_senders_left_out_or_given_twice_are_refused() -> None:
    made = attempt("agree")
    delivery = made.delivery(A)
    one, two, *rest = delivery.shares
    crossed = (replace(one, sealed=two.sealed), replace(two, sealed=one.sealed), *rest)
    for shares in (crossed, (two, *rest), (one, one, two, *rest)):
        wrong = replace(delivery, shares=shares)
        refuses(made.sides[A], partial(made.sides[A].agree, wrong), errors.TamperedShare)


def test_two_different_survivor_sets_are_refused() -> None:
    made = attempt("attest")
    fewer = secagg.Survivors(made.survivors.members[:-1])
    refuses(made.sides[A], lambda: made.sides[A].attest(fewer), errors.InconsistentSurvivors)
    request = secagg.UnmaskRequest(fewer, tuple(made.attestations.values())[:-1])
    refuses(made.sides[A], lambda: made.sides[A].reveal(request), errors.InconsistentSurvivors)


def test_different_survivors_shown_to_different_sites_release_no_share() -> None:
    made = attempt("mask")
    everyone, fewer = site_names(5), site_names(4)
    attested = {
        name: made.sides[name].attest(secagg.Survivors(everyone if name in (A, "site-0004") else fewer))
        for name in everyone
    }
    for name, shown in ((A, everyone), (B, fewer)):
        around = tuple(attested[peer] for peer in shown)
        request = secagg.UnmaskRequest(secagg.Survivors(shown), around)
        refuses(made.sides[name], partial(made.sides[name].reveal, request), errors.InconsistentSurvivors)


def test_fewer_signatures_than_the_threshold_release_no_share() -> None:
    made = attempt("attest")
    request = secagg.UnmaskRequest(made.survivors, tuple(made.attestations[name] for name in (A, B, C)))
    refuses(made.sides[A], lambda: made.sides[A].reveal(request), errors.BelowThreshold)
    repeated = secagg.UnmaskRequest(made.survivors, (made.attestations[B],) * 5)
    refuses(made.sides[A], lambda: made.sides[A].reveal(repeated), errors.BelowThreshold)


def test_signatures_of_anyone_but_surviving_neighbours_release_no_share() -> None:
    made = attempt("attest")
    foreign = secagg.Attestation("stranger", made.attestations[B].signature)
    request = secagg.UnmaskRequest(made.survivors, (*made.attestations.values(), foreign))
    refuses(made.sides[A], lambda: made.sides[A].reveal(request), errors.InventedParticipant)


def test_a_survivor_that_is_called_a_dropout_to_its_face_does_not_sign() -> None:
    made = attempt("mask")
    without = secagg.Survivors(tuple(name for name in site_names(5) if name != A))
    refuses(made.sides[A], lambda: made.sides[A].attest(without), errors.SurvivorDropped)


def test_a_survivor_that_is_called_a_dropout_behind_its_back_stays_masked() -> None:
    made = attempt("mask")
    others = [name for name in site_names(5) if name != A]
    late = made.masked.pop(A)
    made.attest(others)
    made.reveal(others)
    masks_known = secagg.recover(made.closed, made.agreement, made.survivors, list(made.reveals.values()))
    # Everything the aggregator now can remove from A's update: its masks with all the others, but not its own.
    opened = late.copy()
    for mask in masks_known.pair_masks:
        pairwise_keys.unapply_pair_mask(opened, mask.key, mask.dropout, mask.survivor)
    plain = ring_fixed_point.encode(made.vectors[A], made.agreement.exponent, 5, 64)
    assert not np.any(opened == plain)
    digest = agreement_digest(made.closed.digest, made.agreement)
    own = pairwise_keys.self_mask_key(made.sides[A]._secrets.self_mask, digest, A)
    masks.subtract_mask(opened, own)
    assert np.array_equal(opened, plain), "the self-mask is the only thing that was missing"
    # And its shares are not to be had any more.
    everyone = secagg.UnmaskRequest(secagg.Survivors(site_names(5)), tuple(made.attestations.values()))
    for name in others:
        refuses(made.sides[name], partial(made.sides[name].reveal, everyone), errors.BothShares)


def test_both_shares_of_one_participant_are_never_released() -> None:
    made = attempt("mask")
    made.masked.pop(C)
    four = [name for name in site_names(5) if name != C]
    made.attest(four)
    made.reveal(four)
    other = secagg.Survivors(tuple(name for name in site_names(5) if name != B))
    request = secagg.UnmaskRequest(other, tuple(made.attestations[name] for name in four if name != B))
    refuses(made.sides[A], lambda: made.sides[A].reveal(request), errors.BothShares)
    for name, reveal in made.reveals.items():
        seeds, keys = ({share.owner for share in kind} for kind in (reveal.seed_shares, reveal.key_shares))
        assert not seeds & keys, name
        assert keys == {C}


def test_a_round_opened_once_is_not_opened_again_for_other_survivors() -> None:
    first = attempt("reveal")
    context = replace(first.context, attempt=2)
    second = Attempt(context, first.vectors)
    for name in site_names(5):
        second.sides[name] = secagg.ParticipantSide(
            context, identity_of(name), seed_of(context, name), opened_before=first.sides[name].opened
        )
    second.run_to("mask")
    fewer = secagg.Survivors(tuple(name for name in site_names(5) if name != B))
    refuses(second.sides[A], lambda: second.sides[A].attest(fewer), errors.DifferencedSum)
    # The same survivors again give the same sum, which says nothing new.
    second.attest(site_names(5))
    second.reveal(site_names(5))
    assert np.array_equal(second.unmask(), first.unmask())


def test_no_signature_on_new_survivors_after_shares_were_released() -> None:
    made = attempt("reveal")
    refuses(
        made.sides[A],
        lambda: made.sides[A].attest(secagg.Survivors(site_names(4))),
        errors.InconsistentSurvivors,
    )


def test_a_participant_that_releases_a_wrong_share_cannot_bend_the_sum() -> None:
    made = attempt("reveal")
    reveal = made.reveals[A]
    value = reveal.seed_shares[1].value
    bent = replace(reveal.seed_shares[1], value=value[:-1] + bytes([value[-1] ^ 1]))
    made.reveals[A] = replace(reveal, seed_shares=(reveal.seed_shares[0], bent, *reveal.seed_shares[2:]))
    reveals = list(made.reveals.values())
    needed = [made.reveals[A], *(one for one in reveals if one.name != A)][: made.closed.graph.threshold]
    with pytest.raises(errors.TamperedShare, match=bent.owner):
        unmask.recover(made.closed, made.agreement, made.survivors, needed)
    assert np.allclose(made.unmask(), sum(made.vectors.values()))


@pytest.mark.parametrize("garbage", [bytes(33), b"\xff" * 33, b"short"])
def test_with_more_shares_than_the_threshold_wrong_ones_are_left_out_and_named(garbage: bytes) -> None:
    """Those who lie about everything, and as many as there are shares to spare."""
    made = attempt("reveal")
    spare = len(made.reveals) - made.closed.graph.threshold
    liars = site_names(len(made.reveals))[:spare]
    for liar in liars:
        reveal = made.reveals[liar]
        wrong = tuple(replace(share, value=garbage) for share in reveal.seed_shares)
        made.reveals[liar] = replace(reveal, seed_shares=wrong)
    masks = unmask.recover(made.closed, made.agreement, made.survivors, list(made.reveals.values()))
    assert spare > 0
    assert {share.holder for share in masks.inconsistent} <= set(liars)
    assert liars[0] in {share.holder for share in masks.inconsistent}
    assert np.allclose(made.unmask(), sum(made.vectors.values()))


def test_the_aggregator_names_the_participant_whose_message_is_wrong() -> None:
    made = attempt("reveal")
    closed, reveal = made.closed, made.reveals[A]
    with pytest.raises(errors.TamperedShare, match=A):
        secagg.accept_reveal(
            closed, made.agreement, made.survivors, replace(reveal, seed_shares=reveal.seed_shares[1:])
        )
    with pytest.raises(errors.TamperedShare, match=A):
        secagg.accept_reveal(closed, made.agreement, made.survivors, replace(reveal, key_shares=reveal.seed_shares))
    mine = [share for share in made.shares if share.sender == A]
    for shares in (mine[1:], [replace(mine[0], sender=B), *mine[1:]], [replace(mine[0], sealed=b""), *mine[1:]]):
        with pytest.raises(errors.TamperedShare, match=A):
            secagg.accept_shares(closed, A, shares)
    with pytest.raises(errors.ReplayedKey, match=A):
        secagg.accept_advert(replace(made.context, round=9), made.closed.adverts[A], verify)

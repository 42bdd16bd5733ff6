"""A round of the fixed cohort: what a site answers, what it refuses, and what the sum is."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dcfpca.secagg import errors
from dcfpca.secagg.fixed_point import BOUNDED, LIFT, Block, BlockLayout, decode, encode, lifted
from dcfpca.secagg.messages import Masked, Misfit
from dcfpca.secagg.site import Numbers, SecureSite
from tests.support.runs.masked_sums import begin_tally
from tests.support.runs.secagg import identity_of
from tests.support.runs.secure_relay import LAYOUT, Relay, opening_of, random_updates, terms_of

A, B, C = "site-0000", "site-0001", "site-0002"


def refuses(side: SecureSite, act: Callable[[], object], error: type[errors.SecureSumRefusal]) -> None:
    before = side.record
    with pytest.raises(error):
        act()
    assert side.record == before


@pytest.mark.parametrize("count", [2, 5, pytest.param(70, marks=pytest.mark.slow)])
@pytest.mark.parametrize("precision", [64, 32])
def test_the_sum_is_the_exact_fixed_point_sum_of_everybody(count: int, precision: int) -> None:
    terms = terms_of(count, precision=precision)
    relay, updates = Relay(terms).set_up(), random_updates(terms.cohort)
    opening = opening_of()
    parts = [encode(updates[name], LAYOUT, opening.exponents, count, precision) for name in terms.cohort]
    integers = np.sum(parts, axis=0)
    opened = relay.opened(opening, updates)
    assert np.array_equal(opened.numbers, decode(integers, LAYOUT, opening.exponents, count, precision))


def test_every_site_can_verify_the_sum_and_refuses_another() -> None:
    terms = terms_of(4)
    relay, opening = Relay(terms).set_up(), opening_of()
    opened = relay.opened(opening, random_updates(terms.cohort))
    for side in relay.sides.values():
        assert np.array_equal(side.verify_sum(opening, opened.values, opened.tag), opened.numbers)
        other = opened.values.copy()
        other[0] += np.uint64(1)
        refuses(side, partial(side.verify_sum, opening, other, opened.tag), errors.WrongSum)


def test_several_rounds_with_the_sum_before_bound_into_each_open() -> None:
    terms = terms_of(3)
    relay, before = Relay(terms).set_up(), bytes(32)
    for round in (0, 1, 2, 5):
        updates = random_updates(terms.cohort, seed=round)
        opened = relay.opened(opening_of(round, b"U", previous_sum=before), updates)
        before = opened.digest
        assert np.allclose(opened.numbers, sum(updates.values()), atol=1e-11)


@pytest.mark.parametrize(
    "told_differently",
    [
        opening_of(0, b"another consensus"),
        opening_of(1, b"U"),
        opening_of(0, b"U", previous_sum=b"\x01" * 32),
        opening_of(0, b"U", exponents=(7, 20)),
    ],
    ids=["consensus", "round", "previous sum", "exponent"],
)
def test_if_one_site_was_told_something_else_the_total_is_noise(told_differently: object) -> None:
    terms = terms_of(3)
    relay, updates, opening = Relay(terms).set_up(), random_updates(terms.cohort), opening_of(0, b"U")
    answers = [relay.sides[name].answer(opening, updates[name]) for name in (A, B)]
    answers.append(relay.sides[C].answer(told_differently, updates[C]))  # type: ignore[arg-type]
    tally = begin_tally(terms, relay.roster, opening)
    for answer in answers:
        assert isinstance(answer, Masked)
        tally.add(replace(answer, context=tally.context))
    opened = tally.open(terms, opening)
    assert np.all(np.abs(opened.numbers - sum(updates.values())) > 1e-3)
    refuses(relay.sides[A], lambda: relay.sides[A].verify_sum(opening, opened.values, opened.tag), errors.WrongSum)


def test_a_second_consensus_an_earlier_round_and_one_past_the_last_are_refused() -> None:
    relay = Relay(terms_of(3)).set_up()
    side, update = relay.sides[A], random_updates([A])[A]
    side.answer(opening_of(4, b"U"), update)
    refuses(side, lambda: side.answer(opening_of(4, b"V"), update), errors.ChangedConsensus)
    refuses(side, lambda: side.answer(opening_of(4, b"U", previous_sum=b"1" * 32), update), errors.ChangedConsensus)
    refuses(side, lambda: side.answer(opening_of(3, b"U"), update), errors.RoundPassed)
    refuses(side, lambda: side.answer(opening_of(-1, b"U"), update), errors.RoundPassed)
    refuses(side, lambda: side.answer(opening_of(9, b"U"), update), errors.PastLastRound)
    refuses(side, lambda: side.answer(opening_of(4, b"U"), update + 1), errors.ChangedUpdate)
    refuses(side, lambda: side.answer(opening_of(5, b"U"), update[:-1]), errors.ChangedUpdate)
    refuses(side, lambda: side.answer(opening_of(5, b"U", exponents=(1,)), update), errors.ChangedExponent)
    refuses(side, lambda: side.answer(opening_of(5, b"U"), update * np.nan), errors.UnusableUpdate)


def test_after_the_end_of_a_run_nothing_is_answered_and_no_secret_is_left() -> None:
    relay = Relay(terms_of(3)).set_up()
    side, update, opening = relay.sides[A], random_updates([A])[A], opening_of()
    secrets = [side.state.group_secret, *(root for root in side.state.roots if any(root))]
    side.answer(opening, update)
    side.finish()
    assert all(secret not in side.record for secret in secrets)
    for act in (
        lambda: side.answer(opening, update),
        lambda: side.answer(opening_of(1), update),
        lambda: side.share(relay.roster),
        lambda: side.complete(relay.roster, relay.shares),
    ):
        refuses(side, act, errors.RunOver)
    restored = SecureSite.restore(relay.terms, identity_of(A), side.record)
    refuses(restored, lambda: restored.answer(opening, update), errors.RunOver)


def test_a_restored_side_gives_the_same_bytes_for_the_same_round() -> None:
    relay = Relay(terms_of(4)).set_up()
    side, update = relay.sides[B], random_updates([B])[B]
    first = side.answer(opening_of(3, b"U"), update)
    restored = SecureSite.restore(relay.terms, identity_of(B), side.record)
    assert restored.admit(opening_of(3, b"U")) is Numbers.SAVED
    again = restored.answer(opening_of(3, b"U"), update)
    assert isinstance(first, Masked)
    assert isinstance(again, Masked)
    assert first.values.tobytes() == again.values.tobytes()
    assert (first.tag, first.context) == (again.tag, again.context)
    assert restored.record == side.record


def test_roots_of_a_round_that_is_over_are_not_in_the_record() -> None:
    relay = Relay(terms_of(3)).set_up()
    side, update = relay.sides[A], random_updates([A])[A]
    side.answer(opening_of(0), update)
    old = [root for root in side.state.roots if any(root)]
    length = len(side.record)
    side.answer(opening_of(1), update)
    assert old
    assert all(root not in side.record for root in old)
    assert len(side.record) == length


def test_an_update_that_does_not_fit_is_masked_anew_by_everybody_under_larger_exponents() -> None:
    terms = terms_of(3)
    relay, updates, opening = Relay(terms).set_up(), random_updates(terms.cohort), opening_of()
    updates[C] = updates[C] * 2e3
    first = relay.answers(opening, updates)
    (misfit,) = (answer for answer in first if isinstance(answer, Misfit))
    assert misfit.name == C
    raised = replace(opening, misfits=(misfit,))
    assert {side.admit(raised) for side in relay.sides.values()} == {Numbers.SAVED}
    opened = relay.opened(raised, updates)
    assert np.allclose(opened.numbers, sum(updates.values()), atol=1e-6)
    second = relay.answers(raised, updates)
    assert all(one.context != other.context for one, other in zip(first, second, strict=True))
    refuses(relay.sides[A], lambda: relay.sides[A].answer(opening, updates[A]), errors.ChangedExponent)


def test_exponents_are_not_raised_without_a_members_signature_over_this_very_round() -> None:
    relay = Relay(terms_of(3)).set_up()
    updates = random_updates(relay.terms.cohort)
    misfit = relay.sides[C].answer(opening_of(0, b"U"), updates[C] * 2e3)
    assert isinstance(misfit, Misfit)
    side = relay.sides[A]
    for false in (
        replace(misfit, name=B),
        replace(misfit, signature=b""),
        replace(misfit, name="stranger"),
        replace(misfit, certificate=identity_of(C, "elsewhere").certificate),
        replace(misfit, context=bytes(32)),
    ):
        raised = opening_of(0, b"U", misfits=(false,))
        refuses(side, partial(side.answer, raised, updates[A]), errors.ChangedExponent)
    elsewhere = opening_of(1, b"U", misfits=(misfit,))
    refuses(side, lambda: side.answer(elsewhere, updates[A]), errors.ChangedExponent)


def test_a_site_says_three_times_a_run_that_its_update_does_not_fit_and_then_stops() -> None:
    relay = Relay(terms_of(3)).set_up()
    side, update = relay.sides[A], np.full(5, 2.0**13)
    for round in range(3):
        opening = opening_of(round)
        misfit = side.answer(opening, update)
        assert isinstance(misfit, Misfit)
        assert isinstance(side.answer(replace(opening, misfits=(misfit,)), update), Masked)
    refuses(side, lambda: side.answer(opening_of(3), update), errors.UpdateTooLarge)
    assert lifted(LAYOUT, (0, 1), 2, 64) == (2 * LIFT[64], 2 * LIFT[64] + 1)


def test_a_sum_of_which_misfits_left_nothing_is_refused_and_the_last_reporter_named() -> None:
    relay = Relay(terms_of(3, precision=32)).set_up()
    updates = {name: np.full(5, 1e-8) for name in relay.terms.cohort}
    misfits: tuple[Misfit, ...] = ()
    opening, lied = opening_of(), SecureSite(relay.terms, identity_of(C), relay.sides[C].state)
    for _ in range(3):
        misfit = lied.answer(replace(opening, misfits=misfits), np.full(5, 2.0**40))
        assert isinstance(misfit, Misfit)
        misfits = (*misfits, misfit)
    raised = replace(opening, misfits=misfits)
    opened = relay.opened(raised, updates)
    assert not opened.numbers.any()
    with pytest.raises(errors.RoundedAway, match="rounds to nothing after 3 misfits") as caught:
        relay.sides[A].verify_sum(raised, opened.values, opened.tag)
    assert caught.value.accused == C


def test_the_exponent_of_a_bounded_block_is_neither_lifted_nor_announced_otherwise() -> None:
    layout = BlockLayout((Block(BOUNDED, 5, 26),))
    assert lifted(layout, (26,), 2, 64) == (26,)
    side, update = Relay(terms_of(3)).set_up().sides[A], np.ones(5)
    for other in (25, 27):
        false = opening_of(0, layout=layout, exponents=(other,))
        refuses(side, partial(side.answer, false, update), errors.ChangedExponent)
    assert isinstance(side.answer(opening_of(0, layout=layout), update), Masked)


def test_misfits_that_were_never_answered_by_a_lift_count_too_and_a_repetition_does_not() -> None:
    side, update = Relay(terms_of(3)).set_up().sides[A], np.full(5, 2.0**13)
    for round in range(3):
        first = side.answer(opening_of(round), update)
        assert isinstance(first, Misfit)
        assert side.answer(opening_of(round), update) == first
    refuses(side, lambda: side.answer(opening_of(3), update), errors.UpdateTooLarge)


def test_admitting_a_round_pins_nothing_and_an_answered_one_wants_the_saved_numbers() -> None:
    side, update = Relay(terms_of(3)).set_up().sides[A], random_updates([A])[A]
    before = side.record

    assert side.admit(opening_of()) is Numbers.NEW
    assert side.record == before
    side.answer(opening_of(), update)
    assert side.admit(opening_of()) is Numbers.SAVED


def test_the_aggregator_adds_each_member_once_and_opens_nothing_before_the_last() -> None:
    terms = terms_of(3)
    relay, updates, opening = Relay(terms).set_up(), random_updates(terms.cohort), opening_of()
    answers = [answer for answer in relay.answers(opening, updates) if isinstance(answer, Masked)]
    tally = begin_tally(terms, relay.roster, opening)
    tally.add(answers[0])
    for wrong, error in (
        (answers[0], errors.OutOfTurn),
        (replace(answers[1], context=bytes(32)), errors.OutOfTurn),
        (replace(answers[1], values=answers[1].values[:-1]), errors.ChangedUpdate),
        (replace(answers[1], tag=-1), errors.ChangedUpdate),
    ):
        with pytest.raises(error):
            tally.add(wrong)
    tally.add(answers[1])
    with pytest.raises(errors.OutOfTurn, match=C):
        tally.open(terms, opening)

"""Random cohorts, dropouts at random steps, reordering, repeats, delay: the sum is the survivors', or nothing."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcfpca import secagg
from dcfpca.secagg import errors, masks, ring_fixed_point
from dcfpca.secagg.dropout_recovery import pairwise_keys, participant
from tests.support.secagg import Attempt, context_of, random_vectors, seed_of, site_names, verify

STEPS = ("advertise", "share", "bound", "mask", "attest", "reveal")
SIZE = 5


def dropouts(draw: st.DrawFn, names: tuple[str, ...], most: int) -> dict[str, str]:
    """Who drops out, and at which step."""
    gone = draw(st.lists(st.sampled_from(names), max_size=most, unique=True))
    return {name: draw(st.sampled_from(STEPS)) for name in gone}


@st.composite
def stories(draw: st.DrawFn) -> tuple[secagg.Context, dict[str, str], random.Random]:
    count = draw(st.integers(3, 20))
    threshold = draw(st.integers(count // 2 + 1, count))
    precision = draw(st.sampled_from([64, 32]))
    context = context_of(count, threshold=threshold, precision=precision, min_cohort=min(3, threshold))
    return context, dropouts(draw, context.cohort, count), draw(st.randoms(use_true_random=False))


def taking_part(context: secagg.Context, gone: dict[str, str], step: str, order: random.Random) -> list[str]:
    """Those who have not dropped out at this step or before, in any order, some of them twice."""
    reached = STEPS.index(step)
    names = [name for name in context.cohort if STEPS.index(gone.get(name, "reveal")) > reached or name not in gone]
    names += order.sample(names, k=len(names) // 3)
    order.shuffle(names)
    return names


def play(context: secagg.Context, gone: dict[str, str], order: random.Random) -> Attempt:
    """The whole attempt; raises when too few are left. Repeats overwrite, as an idempotent aggregator does."""
    made = Attempt(context, random_vectors(context, SIZE, order.randrange(1000)))
    made.advertise(taking_part(context, gone, "advertise", order))
    made.share(taking_part(context, gone, "share", order))
    made.shares = list(dict.fromkeys(made.shares))
    order.shuffle(made.shares)
    made.bound(taking_part(context, gone, "bound", order))
    made.agree()
    made.mask(taking_part(context, gone, "mask", order))
    made.attest(taking_part(context, gone, "attest", order))
    made.reveal(taking_part(context, gone, "reveal", order))
    return made


def fixed_point_sum(made: Attempt) -> np.ndarray:
    """What the survivors' updates sum to in the ring, without any mask."""
    exponent, count, precision = made.agreement.exponent, len(made.agreement.members), made.context.precision
    encoded = [
        ring_fixed_point.encode(made.vectors[name], exponent, count, precision) for name in made.survivors.members
    ]
    total = np.add.reduce(encoded, dtype=ring_fixed_point.dtype_of(precision))
    return ring_fixed_point.decode(total, exponent, count, precision)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(stories())
def test_the_unmasked_sum_is_the_fixed_point_sum_of_the_survivors_or_nothing(
    story: tuple[secagg.Context, dict[str, str], random.Random],
) -> None:
    context, gone, order = story
    left = len(context.cohort) - len(gone)
    try:
        opened = (made := play(context, gone, order)).unmask()
    except (errors.BelowThreshold, errors.CohortTooSmall):
        assert left < context.threshold
        return
    assert np.array_equal(opened, fixed_point_sum(made))
    assert left >= context.threshold
    delivered = {name for name in context.cohort if gone.get(name, "attest") in ("attest", "reveal")}
    assert set(made.survivors.members) == delivered


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 9), st.data())
def test_below_the_threshold_nothing_is_revealed(count: int, data: st.DataObject) -> None:
    context = context_of(count)
    made = Attempt(context, random_vectors(context, SIZE)).run_to("mask")
    signing = data.draw(st.lists(st.sampled_from(context.cohort), max_size=context.threshold - 1, unique=True))
    made.attest(signing)
    for name in signing:
        request = secagg.request_for(made.closed, made.survivors, name, made.attestations)
        with pytest.raises(errors.BelowThreshold):
            made.sides[name].reveal(request)
        assert not made.sides[name].pinned.released
    assert not secagg.enough(made.closed, made.survivors.members, made.attestations)


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 9), st.data())
def test_fewer_reveals_than_the_threshold_open_nothing(count: int, data: st.DataObject) -> None:
    context = context_of(count)
    made = Attempt(context, random_vectors(context, SIZE)).run_to("attest")
    revealing = data.draw(st.lists(st.sampled_from(context.cohort), max_size=context.threshold - 1, unique=True))
    made.reveal(revealing)
    assert not secagg.enough(made.closed, made.agreement.members, made.reveals)
    with pytest.raises(errors.BelowThreshold):
        made.unmask()


@settings(max_examples=15, deadline=None)
@given(st.integers(4, 10), st.data())
def test_a_masked_update_that_comes_after_dropout_recovery_is_useless(count: int, data: st.DataObject) -> None:
    context = context_of(count, min_cohort=2)
    made = Attempt(context, random_vectors(context, SIZE)).run_to("mask")
    late_name = data.draw(st.sampled_from(context.cohort))
    late = made.masked.pop(late_name)
    others = [name for name in context.cohort if name != late_name]
    made.attest(others)
    made.reveal(others)
    known = secagg.recover(made.closed, made.agreement, made.survivors, list(made.reveals.values()))
    for mask in known.pair_masks:
        assert mask.dropout == late_name
        pairwise_keys.unapply_pair_mask(late, mask.key, mask.dropout, mask.survivor)
    plain = ring_fixed_point.encode(made.vectors[late_name], made.agreement.exponent, count, 64)
    assert not np.any(late == plain)
    assert np.array_equal(made.unmask(), fixed_point_sum(made))


def test_no_mask_is_used_twice_over_rounds_attempts_and_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    used: Counter[bytes] = Counter()

    def count(vector: ring_fixed_point.RingArray, key: bytes) -> None:
        used[key] += 1
        masks.add_mask(vector, key)

    monkeypatch.setattr(participant, "add_mask", count)
    monkeypatch.setattr(pairwise_keys, "add_mask", count)
    monkeypatch.setattr(pairwise_keys, "subtract_mask", count)
    attempts = [
        {"run": run, "round": number, "attempt": attempt}
        for run in ("run-1", "run-2")
        for number in (0, 1)
        for attempt in (1, 2)
    ]
    for which in attempts:
        context = context_of(4, **which)
        Attempt(context, random_vectors(context, SIZE)).run_to("mask")
    # In each attempt of four: every self-mask once, and every pair's mask at its two ends and nowhere else.
    assert Counter(used.values()) == {1: 4 * len(attempts), 2: 6 * len(attempts)}


def test_another_agreement_under_the_same_seed_is_another_mask() -> None:
    # Even a participant that lost its memory of the attempt does not mask twice alike.
    context = context_of(4, min_cohort=3)
    streams = []
    for names in (site_names(4), site_names(3)):
        made = Attempt(context, {name: np.zeros(64) for name in context.cohort})
        made.advertise(context.cohort)
        made.share(context.cohort)
        made.bound(names)
        made.agree()
        made.mask(names)
        assert seed_of(context, names[0]) == seed_of(context, site_names(1)[0])
        streams.append(made.masked[names[0]])
    assert not np.any(streams[0] == streams[1])


def test_what_the_aggregator_accepts_its_participants_accept_too() -> None:
    # The two sides check the same things, so an honest aggregator never relays what an honest participant refuses.
    context = context_of(6)
    made = Attempt(context, random_vectors(context, SIZE)).run_to("reveal")
    for name, attestation in made.attestations.items():
        secagg.accept_attestation(made.closed, made.agreement, made.survivors, attestation, verify)
        secagg.accept_reveal(made.closed, made.agreement, made.survivors, made.reveals[name])

"""The participant's side by itself: order of steps, restarts, and what it never prints."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from dcfpca import secagg
from dcfpca.errors import BadInput
from dcfpca.secagg import errors
from tests.support.secagg import Attempt, context_of, identity_of, random_vectors, seed_of, site_names

A, B = site_names(2)


def finished(**changes: object) -> Attempt:
    context = context_of(5, **changes)
    return Attempt(context, random_vectors(context, 50)).run_to("reveal")


@pytest.mark.parametrize("precision", [64, 32])
def test_the_sum_is_that_of_the_updates(precision: int) -> None:
    made = finished(precision=precision)
    exact = np.array([math.fsum(column) for column in zip(*made.vectors.values(), strict=True)])
    # Five roundings to 62 − 3 (or 30 − 3) bits, and one of the result to 53.
    allowed = 5 * 2.0 ** (made.agreement.exponent - precision + 5) + np.abs(exact) * 2.0**-52
    assert np.all(np.abs(made.unmask() - exact) <= allowed)


def test_steps_out_of_turn_are_refused_and_change_nothing() -> None:
    made = finished()
    side = secagg.ParticipantSide(made.context, identity_of(A), seed_of(made.context, A))
    request = secagg.request_for(made.closed, made.survivors, A, made.attestations)

    def too_early(*acts: object) -> None:
        for act in acts:
            before = side.pinned
            with pytest.raises(errors.OutOfTurn):
                act()  # type: ignore[operator]
            assert side.pinned == before

    def agree() -> None:
        side.agree(made.delivery(A))

    def mask() -> None:
        side.mask(made.vectors[A])

    def attest() -> None:
        side.attest(made.survivors)

    def reveal() -> None:
        side.reveal(request)

    too_early(agree, mask, attest, reveal)
    side.share(secagg.roster_for(made.closed, A))
    too_early(agree, mask, attest, reveal)
    side.state_bound(made.vectors[A])
    too_early(mask, attest, reveal)
    side.agree(made.delivery(A))
    side.mask(made.vectors[A])
    too_early(reveal)
    side.attest(made.survivors)
    assert side.reveal(request) == made.reveals[A]


def test_a_side_made_anew_after_a_crash_at_any_point_repeats_itself_byte_for_byte() -> None:
    made = finished()
    request = secagg.request_for(made.closed, made.survivors, A, made.attestations)
    vector = made.vectors[A]

    def agree_and_mask(side: secagg.ParticipantSide) -> bytes:
        side.agree(made.delivery(A))
        return side.mask(vector).tobytes()

    steps: list[Callable[[secagg.ParticipantSide], object]] = [
        lambda side: side.advertise(),
        lambda side: side.share(secagg.roster_for(made.closed, A)),
        lambda side: side.state_bound(vector),
        agree_and_mask,
        lambda side: side.attest(made.survivors),
        lambda side: side.reveal(request),
    ]
    for crash_after in range(len(steps) + 1):
        side = secagg.ParticipantSide(made.context, identity_of(A), seed_of(made.context, A))
        said = [step(side) for step in steps[:crash_after]]
        reborn = secagg.ParticipantSide(made.context, identity_of(A), seed_of(made.context, A))
        assert [step(reborn) for step in steps[:crash_after]] == said
        assert reborn.pinned == side.pinned


def test_a_restarted_side_keeps_every_promise_it_made_before_the_crash() -> None:
    made = finished()

    def reborn() -> secagg.ParticipantSide:
        """A side that was given the saved messages again."""
        side = secagg.ParticipantSide(made.context, identity_of(A), seed_of(made.context, A))
        side.share(secagg.roster_for(made.closed, A))
        side.state_bound(made.vectors[A])
        side.agree(made.delivery(A))
        side.attest(made.survivors)
        side.reveal(secagg.request_for(made.closed, made.survivors, A, made.attestations))
        return side

    smaller = secagg.close_roster(made.context, [made.closed.adverts[name] for name in site_names(4)])
    fewer = secagg.Survivors(site_names(4))
    with pytest.raises(errors.ChangedRoster):
        reborn().share(secagg.roster_for(smaller, A))
    with pytest.raises(errors.ChangedUpdate):
        reborn().state_bound(made.vectors[B])
    with pytest.raises(errors.ChangedUpdate):
        reborn().mask(made.vectors[B])
    with pytest.raises(errors.InconsistentSurvivors):
        reborn().attest(fewer)
    with pytest.raises(errors.BothShares):
        reborn().reveal(secagg.UnmaskRequest(fewer, ()))


def test_two_different_updates_are_never_masked_alike() -> None:
    made = finished()
    side = made.sides[A]
    other = made.vectors[A].copy()
    other[-1] += 1e-9
    before = side.pinned
    for act in (side.state_bound, side.mask):
        with pytest.raises(errors.ChangedUpdate):
            act(other)
    assert side.pinned == before


def test_an_update_that_is_not_finite_is_refused_before_anything_is_said() -> None:
    made = finished()
    side = secagg.ParticipantSide(made.context, identity_of(A), seed_of(made.context, A))
    with pytest.raises(errors.UnusableUpdate):
        side.state_bound(np.array([1.0, np.nan]))
    assert side.pinned == secagg.Pinned()


def test_no_secret_shows_in_a_repr() -> None:
    made = finished()
    made.masked.pop(B)
    side = made.sides[A]
    masks = secagg.recover(made.closed, made.agreement, made.survivors, list(made.reveals.values()))
    shown = repr([side, vars(side), masks, made.reveals[A]])
    hidden = [seed_of(made.context, A), side._secrets.self_mask, side._secrets.sharing]
    hidden += [side._secrets.mask.private_bytes_raw(), *masks.self_masks]
    hidden += [share.value for share in made.reveals[A].seed_shares]
    for secret in hidden:
        assert repr(secret) not in shown
        assert secret.hex() not in shown


@pytest.mark.parametrize(
    "wrong",
    [{"threshold": 2}, {"threshold": 6}, {"cohort": ("a", "a", "b"), "threshold": 2}, {"precision": 16}],
    ids=str,
)
def test_a_context_that_protects_nothing_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        context_of(5, **wrong)


def test_a_seed_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(BadInput, match="32 bytes"):
        secagg.ParticipantSide(context_of(3), identity_of(A), b"short")


def test_everything_about_an_attempt_is_bound_except_each_sites_own_policy() -> None:
    base = context_of(5)
    changes = ({"run": "x"}, {"spec_digest": b"x"}, {"round": 1}, {"attempt": 2}, {"threshold": 5}, {"precision": 32})
    bindings = {replace(base, **change).binding for change in changes} | {context_of(6).binding, base.binding}
    assert len(bindings) == len(changes) + 2
    assert replace(base, min_cohort=5).binding == base.binding

"""The stored record of a site: it comes back as it was, or it is known to be lost."""

import pytest

from dcfpca.secagg import errors
from dcfpca.secagg.site import SecureSite
from dcfpca.secagg.state import from_record, latest, to_record
from tests.support.runs.secagg import identity_of
from tests.support.runs.secure_relay import Relay, begin, opening_of, random_updates, terms_of

A = "site-0000"


def test_the_record_has_the_same_length_at_every_step_and_comes_back_as_it_was() -> None:
    relay = Relay(terms_of(4))
    side, update, records = relay.sides[A], random_updates([A])[A], []
    for act in (relay.advertise, relay.share, relay.complete, lambda: side.answer(opening_of(), update), side.finish):
        records.append(side.record)
        act()
    records.append(side.record)
    assert len({len(record) for record in records}) == 1
    assert all(to_record(from_record(record, relay.terms.binding)) == record for record in records)


def test_a_damaged_or_foreign_record_is_lost_state() -> None:
    side = begin(terms_of(3), A)
    record = side.record
    for place in (0, 9, 40, len(record) - 1):
        bent = bytearray(record)
        bent[place] ^= 1
        with pytest.raises(errors.LostState):
            SecureSite.restore(side.terms, identity_of(A), bytes(bent))
    for wrong in (b"", record[:-1], record + b"\x00", bytes(len(record))):
        with pytest.raises(errors.LostState):
            SecureSite.restore(side.terms, identity_of(A), wrong)
    with pytest.raises(errors.LostState):
        SecureSite.restore(terms_of(3, run="run-2"), identity_of(A), record)


def test_of_two_slots_the_newest_whole_one_counts() -> None:
    relay = Relay(terms_of(3)).set_up()
    side = relay.sides[A]
    old = side.record
    side.answer(opening_of(), random_updates([A])[A])
    new, binding = side.record, relay.terms.binding
    torn = new[: len(new) // 2] + old[len(new) // 2 :]
    assert latest((old, new), binding) == latest((new, new), binding) == side.state
    assert latest((torn, old), binding) == from_record(old, binding)
    with pytest.raises(errors.LostState):
        latest((torn, torn), binding)


def test_no_secret_shows_in_a_repr() -> None:
    relay = Relay(terms_of(3)).set_up()
    state = relay.sides[A].state
    shown = repr(state)
    for secret in (state.group_secret, *state.roots, state.private_key, state.own_share):
        assert repr(secret) not in shown or not any(secret)

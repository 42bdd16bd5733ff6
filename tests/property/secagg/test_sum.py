"""The fixed cohort opens to the exact fixed-point sum, whatever the numbers, cohort, precision and lifts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcfpca.secagg.errors import RoundedAway, UpdateTooLarge
from dcfpca.secagg.fixed_point import MOST_LIFTS, decode, encode, lifted, rounds_to_nothing
from dcfpca.secagg.messages import Misfit
from tests.support.runs.secure_relay import LAYOUT, Relay, opening_of, terms_of

numbers = st.floats(-(2.0**17), 2.0**17, allow_nan=False)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 6), st.sampled_from([64, 32]), st.integers(0, 8))
def test_the_sum_opens_exactly_and_every_site_verifies_it(
    data: st.DataObject, count: int, precision: int, round: int
) -> None:
    terms = terms_of(count, precision=precision)
    relay, opening = Relay(terms).set_up(), opening_of(round, b"U")
    updates = {name: np.array(data.draw(st.lists(numbers, min_size=5, max_size=5))) for name in terms.cohort}
    try:
        while misfits := [one for one in relay.answers(opening, updates) if isinstance(one, Misfit)]:
            opening = replace(opening, misfits=(*opening.misfits, misfits[0]))
        opened = relay.opened(opening, updates)
    except UpdateTooLarge:
        assert len(opening.misfits) == MOST_LIFTS  # an update that no lift makes fit is refused, not clipped
        return
    exponents = lifted(opening.layout, opening.exponents, len(opening.misfits), precision)
    parts = [encode(update, LAYOUT, exponents, count, precision) for update in updates.values()]
    integers = np.add.reduce(parts)
    assert np.array_equal(opened.numbers, decode(integers, LAYOUT, exponents, count, precision))
    for side in relay.sides.values():
        if opening.misfits and rounds_to_nothing(integers, LAYOUT):  # only exponents that a member raised leave nothing
            with pytest.raises(RoundedAway):
                side.verify_sum(opening, opened.values, opened.tag)
        else:
            assert np.array_equal(side.verify_sum(opening, opened.values, opened.tag), opened.numbers)

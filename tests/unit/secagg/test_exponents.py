"""The rule of exponents: from the layout, then from the last sum, block by block."""

import numpy as np
import pytest

from dcfpca.secagg import errors
from dcfpca.secagg.fixed_point import (
    HEADROOM,
    MOST_LIFTS,
    ROOM,
    STEEPEST_FALL,
    Block,
    BlockLayout,
    check_exponents,
    decode,
    encode,
    fits,
    in_range,
    lifted,
    next_exponents,
)
from tests.support.runs.masked_sums import resolution_bits

LAYOUT = BlockLayout((Block("tensor", 3, 2), Block("columns", 1, 24)))


def test_the_first_exponents_are_the_layouts() -> None:
    assert LAYOUT.first_exponents == (2, 24)


@pytest.mark.parametrize("precision", [64, 32])
def test_the_next_exponents_bound_the_last_sum_with_headroom(precision: int) -> None:
    total = np.array([0.9, -5.0, 0.1, 3000.0])
    assert next_exponents(LAYOUT, (2, 12), total, precision) == (3 + HEADROOM[precision], 12 + HEADROOM[precision])


def test_exponents_fall_slowly_and_not_to_nothing_after_a_sum_of_zeros() -> None:
    assert next_exponents(LAYOUT, (40, 24), np.zeros(4), 64) == (40 - STEEPEST_FALL, 24 - STEEPEST_FALL)


def test_each_block_has_its_own_bound() -> None:
    assert fits(np.array([3.9, -3.9, 0.0, 2.0**23]), LAYOUT, (2, 24))
    assert not fits(np.array([4.0, 0.0, 0.0, 0.0]), LAYOUT, (2, 24))
    assert not fits(np.array([0.0, 0.0, 0.0, -(2.0**24)]), LAYOUT, (2, 24))
    with pytest.raises(errors.UnusableUpdate):
        fits(np.array([np.inf, 0.0, 0.0, 0.0]), LAYOUT, (2, 24))


def test_a_large_count_costs_the_tensor_no_precision() -> None:
    vector = np.array([1e-9, -3.1, 0.2, 1e7])
    back = decode(encode(vector, LAYOUT, (2, 24), 10, 64), LAYOUT, (2, 24), 10, 64)
    assert np.all(np.abs(back - vector)[:3] <= 2.0 ** (2 + 4 - ROOM[64] - 1))


@pytest.mark.parametrize("precision", [64, 32])
@pytest.mark.parametrize("members", [2, 3, 63, 64, 1000])
def test_the_sum_of_the_largest_updates_stays_in_range(members: int, precision: int) -> None:
    largest = np.nextafter(np.array([4.0, -4.0, 4.0, 2.0**24]), 0)
    encoded = encode(largest, LAYOUT, (2, 24), members, precision)
    assert in_range(encoded * members, precision)


def test_exponents_out_of_range_or_of_the_wrong_number_are_refused() -> None:
    check_exponents(LAYOUT, (-960, 960))
    for wrong in ((2,), (2, 24, 3), (961, 2), (2, -961)):
        with pytest.raises(errors.ChangedExponent):
            check_exponents(LAYOUT, wrong)


@pytest.mark.parametrize(("members", "precision", "bits"), [(15, 64, 20), (1023, 64, 14), (15, 32, 12), (127, 32, 9)])
def test_no_misfits_take_the_last_bits_of_a_sum(members: int, precision: int, bits: int) -> None:
    """Three false misfits in one round, under exponents that follow from a sum of about the same size."""
    assert resolution_bits(members, precision) >= bits
    total = np.array([0.9, -0.7, 0.1, 3000.0])
    exponents = lifted(LAYOUT, next_exponents(LAYOUT, (2, 12), total, precision), MOST_LIFTS, precision)
    own = total / members
    back = decode(members * encode(own, LAYOUT, exponents, members, precision), LAYOUT, exponents, members, precision)
    assert np.all(np.abs(back - total)[:2] <= members * 2.0**-bits)

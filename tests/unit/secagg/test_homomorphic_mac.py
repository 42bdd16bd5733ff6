"""The tag of a sum: exact arithmetic, and forgeries that must not pass."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dcfpca.secagg.encoding import derive
from dcfpca.secagg.fixed_point import in_range
from dcfpca.secagg.homomorphic_mac import P, tag_of, to_field
from tests.support.runs.masked_sums import expand

KEY = (bytes(range(32)), b"\x07" * 32)  # of the group, and the context
LIMIT = (1 << 60) - 1


def by_hand(integers: list[int], members: int) -> int:
    stream = expand(derive(KEY[0], "tag-weights", KEY[1]), 8 * len(integers))
    weights = [int.from_bytes(stream[8 * k : 8 * k + 8], "little") % 2**61 for k in range(len(integers))]
    return (
        members * to_field(derive(KEY[0], "tag-pad", KEY[1]))
        + sum(h * x for h, x in zip(weights, integers, strict=True))
    ) % P


@given(st.lists(st.integers(-LIMIT, LIMIT), max_size=20), st.integers(1, 1 << 14))
def test_the_tag_is_the_weighted_sum_over_the_integers_modulo_the_prime(integers: list[int], members: int) -> None:
    assert tag_of(*KEY, np.array(integers, dtype=np.int64), members) == by_hand(integers, members)


@pytest.mark.parametrize("extreme", [LIMIT, -LIMIT])
def test_half_a_million_numbers_at_the_limit_do_not_overflow(extreme: int) -> None:
    integers = [extreme] * 500_000
    assert tag_of(*KEY, np.array(integers, dtype=np.int64)) == by_hand(integers, 1)


def test_tags_add_up_to_the_tag_of_the_sum() -> None:
    parts = np.random.default_rng(0).integers(-LIMIT // 8, LIMIT // 8, size=(8, 1000))
    assert sum(tag_of(*KEY, part) for part in parts) % P == tag_of(*KEY, parts.sum(axis=0), 8)


def test_a_difference_by_any_power_of_two_or_by_the_prime_does_not_pass() -> None:
    total = np.random.default_rng(1).integers(-LIMIT // 2, LIMIT // 2, size=64)
    tag = tag_of(*KEY, total, 4)
    for power in range(60):
        forged = total.copy()
        forged[power] -= np.sign(total[power]) * (1 << power)
        assert tag_of(*KEY, forged, 4) != tag
    for multiple in (P, -P, 4 * P):
        far = np.zeros(64, dtype=np.int64)
        far[3] = multiple
        assert not in_range(far, 64)


def test_multiples_of_the_sum_with_the_same_multiple_of_its_tag_do_not_pass() -> None:
    total = np.random.default_rng(2).integers(-1000, 1000, size=16)
    tag = tag_of(*KEY, total, 4)
    for factor in (0, 2, 3, -1):
        assert tag_of(*KEY, total * factor, 4) != tag * factor % P


@pytest.mark.parametrize("integers", [[], [1]])  # the pad alone, and with a weight
def test_another_context_or_secret_has_other_tags(integers: list[int]) -> None:
    keys = [(secret * 32, context * 32) for secret in (b"a", b"b") for context in (b"c", b"d")]
    assert len({tag_of(*key, np.array(integers, dtype=np.int64)) for key in keys}) == 4

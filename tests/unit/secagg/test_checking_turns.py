"""Turns in which members check a sum: one in every round, everybody in turn."""

from __future__ import annotations

import pytest

from dcfpca.secagg.messages import TURNS, members_in_turn, unforeseen_draw


@pytest.mark.parametrize("members", [2, 3, 7, 8, 9, 10, 64, 100])
def test_every_round_has_a_checking_member_and_every_member_its_turn(members: int) -> None:
    cohort = tuple(f"site-{place:03d}" for place in range(members))
    cycle = min(TURNS, members)
    in_turn = [members_in_turn(cohort, round) for round in range(3 * cycle)]
    assert all(in_turn)
    for name in cohort:
        assert sum(name in one for one in in_turn) == 3


def test_a_draw_stays_when_a_round_is_announced_again_and_is_another_at_another_member() -> None:
    mine, others = (b"a" * 32, b"b" * 32), (b"a" * 32, b"c" * 32)
    drawn = [unforeseen_draw(mine, round) for round in range(1000)]
    assert drawn == [unforeseen_draw(mine, round) for round in range(1000)]
    assert sum(one % 64 == 0 for one in drawn) in range(1, 40)
    assert drawn != [unforeseen_draw(others, round) for round in range(1000)]

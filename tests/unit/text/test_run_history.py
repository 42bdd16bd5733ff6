import math

import pytest

from dcfpca.text.run_progress import RunHistory, rounds_left, seconds_left
from dcfpca.v1 import admin_pb2 as pb


def view(*numbers: int, status: str = "running") -> pb.RunView:
    return pb.RunView(
        run_id="r", status=status, rounds=[pb.RoundView(round=n, bytes_sent=10, seconds=1) for n in numbers]
    )


def test_views_with_all_rounds_and_views_with_new_rounds_give_the_same_picture() -> None:
    whole, news = RunHistory(), RunHistory()
    for one in (view(0), view(0, 1), view(0, 1, 2)):
        whole.take(one)
    for one in (view(0), view(1), view(2)):
        news.take(one)
    assert whole.complete_view() == news.complete_view()
    assert whole.bytes_sent() == news.bytes_sent() == 30


def test_a_round_is_new_once() -> None:
    history = RunHistory()
    assert [one.round for one in history.take(view(0, 1))] == [0, 1]
    assert [one.round for one in history.take(view(0, 1, 2))] == [2]
    assert history.take(view(2)) == []
    assert history.last_round == 2


def test_before_the_first_round_all_rounds_are_asked_for() -> None:
    assert RunHistory().last_round == -1


@pytest.mark.parametrize("factor", [0.1, 0.5, 0.9])
def test_a_geometric_fall_is_foreseen_exactly(factor: float) -> None:
    changes = [factor**k for k in range(6)]
    left = rounds_left(changes, done=6, limit=10_000, tolerance=1e-9)
    # First round below the tolerance, and the one more that must also be.
    first_below = next(k for k in range(100_000) if factor**k <= 1e-9 * (1 + 1e-9))
    assert left == first_below - 5 + 1


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ([], 1e-9),
        ([1.0], 1e-9),
        ([1.0, 2.0], 1e-9),
        ([math.nan] * 5, 1e-9),
        ([1.0, 0.1, 0.01], 0.0),
        ([0.0, 0.0], 1e-9),
    ],
)
def test_without_a_fall_to_go_by_the_limit_is_the_answer(changes: list[float], tolerance: float) -> None:
    assert rounds_left(changes, done=3, limit=50, tolerance=tolerance) == 47


def test_never_more_than_the_limit_and_never_negative() -> None:
    assert rounds_left([1.0, 0.999], done=3, limit=50, tolerance=1e-9) == 47
    assert rounds_left([1.0, 0.999], done=60, limit=50, tolerance=1e-9) == 0
    assert rounds_left([1e-3, 1e-10], done=3, limit=50, tolerance=1e-9) == 1


def test_no_time_is_foretold_from_the_opening_exchange_alone() -> None:
    assert math.isnan(seconds_left([pb.RoundView(round=0, seconds=3)], 10, 1e-9))
    assert seconds_left([pb.RoundView(round=1, seconds=2, change=math.nan)], 10, 1e-9) == 18

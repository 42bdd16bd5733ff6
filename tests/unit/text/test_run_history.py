from dcfpca.text.run_progress import RunHistory
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

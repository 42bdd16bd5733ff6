"""The operator's calls go to whichever aggregator serves, over real channels to two servers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from dcfpca.identity import Identity, Role
from dcfpca.operator import connection
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import FailoverChannel
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.v1.admin_pb2_grpc import AdminServiceServicer, add_AdminServiceServicer_to_server
from dcfpca.wire.addresses import Address


class Aggregator(AdminServiceServicer):
    """One of two: it serves, or stands by."""

    def __init__(self, name: str) -> None:
        self.name, self.serving, self.asked = name, False, 0
        self.server = grpc.server(ThreadPoolExecutor(2))
        add_AdminServiceServicer_to_server(self, self.server)
        self.address = Address("127.0.0.1", self.server.add_insecure_port("127.0.0.1:0"))
        self.server.start()

    def _check(self, context: Any) -> None:
        self.asked += 1
        if not self.serving:
            context.abort(grpc.StatusCode.UNAVAILABLE, "this aggregator is a standby")

    def GetRun(self, request: Any, context: Any) -> pb.RunView:  # noqa: N802
        self._check(context)
        if request.run_id == "none":
            context.abort(grpc.StatusCode.NOT_FOUND, "no such run")
        return pb.RunView(run_id=self.name)

    def WatchRun(self, request: Any, context: Any) -> Iterator[pb.RunView]:  # noqa: N802
        self._check(context)
        yield pb.RunView(run_id=self.name, round=1)
        yield pb.RunView(run_id=self.name, round=2)


@pytest.fixture
def pair() -> Iterator[tuple[Aggregator, Aggregator]]:
    made = Aggregator("one"), Aggregator("two")
    yield made
    for one in made:
        one.server.stop(None).wait()


@pytest.fixture
def operator(pair: tuple[Aggregator, Aggregator]) -> Iterator[Operator]:
    addresses = [one.address for one in pair]
    with FailoverChannel(addresses, lambda address: grpc.insecure_channel(str(address))) as channel:
        yield Operator(channel, addresses[0], Identity("acme", Role.OPERATOR, "op"))


def test_calls_and_streams_follow_the_one_that_serves(pair: tuple[Aggregator, Aggregator], operator: Operator) -> None:
    one, two = pair
    two.serving = True
    assert operator.run("r").run_id == "two"
    assert [view.round for view in operator.watch("r", -1)] == [1, 2]
    assert one.asked == 1, "the one that served last is asked first"
    one.serving, two.serving = True, False
    assert [view.run_id for view in operator.watch("r", -1)] == ["one", "one"]
    two.server.stop(None).wait()
    assert operator.run("r").run_id == "one"


def test_a_refusal_is_an_answer(pair: tuple[Aggregator, Aggregator], operator: Operator) -> None:
    for one in pair:
        one.serving = True
    with pytest.raises(grpc.RpcError) as caught:
        operator.run("none")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert [one.asked for one in pair] == [1, 0]


def test_when_nobody_serves_for_long_that_is_said(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(connection, "PAUSE_SECONDS", 0.01)
    with pytest.raises(grpc.RpcError) as caught:
        operator.run("r")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

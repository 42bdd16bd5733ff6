"""Following a run while the aggregator comes and goes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from dcfpca.errors import Unreachable
from dcfpca.operator.run_stream import RetryPolicy
from dcfpca.text.run_progress import RunProgress
from dcfpca.text.run_watch import follow_run
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.v1.admin_pb2_grpc import AdminServiceStub


class DownAtFirst:
    """An operator whose aggregator is down, with nobody at its address, for this many calls."""

    def __init__(self, calls: int, channel: grpc.Channel) -> None:
        self.left, self._stub = calls, AdminServiceStub(channel)

    def watch(self, run_id: str, after: int) -> Iterator[pb.RunView]:
        self.left -= 1
        if self.left >= 0:
            nobody: Any = self._stub.WatchRun(pb.WatchRunRequest(run_id=run_id, after_round=after))
            return iter(nobody)
        return iter([pb.RunView(run_id=run_id, status="finished")])


@pytest.fixture
def channel() -> Iterator[grpc.Channel]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with grpc.insecure_channel(f"127.0.0.1:{taken.getsockname()[1]}") as made:
            yield made


def follow(calls: int, channel: grpc.Channel, retry: RetryPolicy) -> str:
    with RunProgress() as progress:
        operator: Any = DownAtFirst(calls, channel)
        return follow_run(operator, "r1", progress, retry).status


def test_with_patience_an_aggregator_that_is_down_at_the_start_is_waited_for(channel: grpc.Channel) -> None:
    assert follow(3, channel, RetryPolicy(60.0, 0.001, 0.001, from_start=True)) == "finished"


def test_without_it_the_first_failure_is_told_at_once(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError):
        follow(1, channel, RetryPolicy(60.0, 0.001, 0.001))


def test_patience_ends(channel: grpc.Channel) -> None:
    with pytest.raises(Unreachable, match="could not be reached for 0 s"):
        follow(1000, channel, RetryPolicy(0.0, 0.001, 0.001, from_start=True))

"""Streams the views of one run, across restarts of the aggregator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

from dcfpca.errors import Unreachable
from dcfpca.operator.client import Operator, is_lost
from dcfpca.v1 import admin_pb2 as pb

OVER = frozenset({"finished", "failed", "aborted"})
"""Statuses that no longer change."""
AT_REST = OVER | {"paused"}
"""Statuses that a run keeps until an operator acts."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The time limit for reconnecting, and the shortest and longest pause between attempts.

    An aggregator that cannot be reached at first is an error at once unless `from_start`: the address may be wrong.
    """

    seconds: float = 600.0
    first_pause: float = 0.2
    longest_pause: float = 5.0
    from_start: bool = False


def run_views(
    operator: Operator,
    run_id: str,
    retry: RetryPolicy,
    *,
    after_round: int = -1,
    on_lost: Callable[[], None] = lambda: None,
) -> Iterator[pb.RunView]:
    """Yield the run now and at every change, each round after `after_round` once, until it is over or paused.

    When the connection is lost, `on_lost` is called, and after reconnecting only missing rounds are requested. Raises
    Unreachable when it stays lost for longer than the retry policy allows, and grpc.RpcError if a retry cannot help.
    """
    # gRPC's own retries do not help here: they end with the first message of a stream.
    begun, last, lost_at, pause = retry.from_start, after_round, None, retry.first_pause
    while True:
        try:
            for view in operator.watch(run_id, last):
                begun, lost_at, pause = True, None, retry.first_pause
                last = max([last, *(one.round for one in view.rounds)])
                yield view
                if view.status in AT_REST:
                    return
        except grpc.RpcError as error:
            if not is_lost(error) or not begun:
                raise
        lost_at = _still_lost(run_id, lost_at, retry, on_lost)
        time.sleep(pause)
        pause = min(pause * 2, retry.longest_pause)


def _still_lost(run_id: str, since: float | None, retry: RetryPolicy, on_lost: Callable[[], None]) -> float:
    """When the connection was lost; raises Unreachable if that is too long ago."""
    now = time.monotonic()
    if since is None:
        on_lost()
        return now
    if now - since > retry.seconds:
        raise Unreachable(
            f"the aggregator could not be reached for {retry.seconds:g} s; the watch ends",
            f"the run is not affected: watch it again with `dcfpca run watch {run_id}`",
        )
    return since

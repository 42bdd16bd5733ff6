"""What has been seen of a run, and how long it may still take. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from dcfpca.v1 import admin_pb2 as pb

OVER = frozenset({"finished", "failed", "aborted"})
"""Statuses that no longer change."""

_RECENT = 5


@dataclass(slots=True)
class Seen:
    """The run as told so far. Views may repeat rounds or bring only the new ones; both give the same picture."""

    view: pb.RunView = field(default_factory=pb.RunView)
    rounds: dict[int, pb.RoundView] = field(default_factory=dict)

    def take(self, view: pb.RunView) -> list[pb.RoundView]:
        """Take in a view; returns the rounds that are new, oldest first."""
        fresh = [one for one in view.rounds if one.round not in self.rounds]
        self.rounds |= {one.round: one for one in view.rounds}
        self.view = view
        return fresh

    @property
    def last_round(self) -> int:
        """The newest finished round; −1 before the first."""
        return max(self.rounds, default=-1)

    def whole(self) -> pb.RunView:
        """The view with all rounds that were seen."""
        whole = pb.RunView()
        whole.CopyFrom(self.view)
        del whole.rounds[:]
        whole.rounds.extend(self.rounds[number] for number in sorted(self.rounds))
        return whole

    def bytes_received(self) -> int:
        """Payload bytes that participants sent so far."""
        return sum(one.bytes_received for one in self.rounds.values())

    def bytes_sent(self) -> int:
        """Payload bytes that participants were sent so far."""
        return sum(one.bytes_sent for one in self.rounds.values())


def rounds_left(changes: Sequence[float], done: int, limit: int, tolerance: float) -> int:
    """How many rounds are still to come at most, judged by how fast the subspace change has fallen lately."""
    most = max(limit - done, 0)
    recent = [change for change in changes[-_RECENT:] if math.isfinite(change) and change > 0]
    if tolerance <= 0 or len(recent) < 2:
        return most
    if recent[-1] < tolerance:
        return min(most, 1)
    fall = (math.log(recent[0]) - math.log(recent[-1])) / (len(recent) - 1)
    if fall <= 0:
        return most
    # The tolerance must be met twice running, hence one more.
    return min(most, math.ceil((math.log(recent[-1]) - math.log(tolerance)) / fall) + 1)


def seconds_left(rounds: Sequence[pb.RoundView], limit: int, tolerance: float) -> float:
    """The rounds left times the usual length of a round; NaN before there is one to go by."""
    worked = [one for one in rounds if one.round > 0]
    if not worked:
        return math.nan
    usual = median(one.seconds for one in worked[-_RECENT:])
    return usual * rounds_left([one.change for one in worked], worked[-1].round, limit, tolerance)

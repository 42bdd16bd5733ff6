"""The views of a run received so far, and an estimate of the time it still takes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from dcfpca.v1 import admin_pb2 as pb

_RECENT = 5


@dataclass(slots=True)
class RunHistory:
    """The latest view and all rounds so far. Views may repeat rounds or carry only new ones; the result is the same."""

    view: pb.RunView = field(default_factory=pb.RunView)
    rounds: dict[int, pb.RoundView] = field(default_factory=dict)

    def take(self, view: pb.RunView) -> list[pb.RoundView]:
        """Add a view; returns the rounds that are new, oldest first."""
        fresh = [one for one in view.rounds if one.round not in self.rounds]
        self.rounds |= {one.round: one for one in view.rounds}
        self.view = view
        return fresh

    @property
    def last_round(self) -> int:
        """The newest finished round; −1 before the first."""
        return max(self.rounds, default=-1)

    def complete_view(self) -> pb.RunView:
        """The latest view with all rounds received so far."""
        complete = pb.RunView()
        complete.CopyFrom(self.view)
        del complete.rounds[:]
        complete.rounds.extend(self.rounds[number] for number in sorted(self.rounds))
        return complete

    def bytes_received(self) -> int:
        """Payload bytes that participants sent so far."""
        return sum(one.bytes_received for one in self.rounds.values())

    def bytes_sent(self) -> int:
        """Payload bytes that participants were sent so far."""
        return sum(one.bytes_sent for one in self.rounds.values())


def rounds_left(changes: Sequence[float], done: int, limit: int, tolerance: float) -> int:
    """An upper estimate of the rounds to come, extrapolated from how the subspace change fell in recent rounds."""
    most = max(limit - done, 0)
    recent = [change for change in changes[-_RECENT:] if math.isfinite(change) and change > 0]
    if tolerance <= 0 or len(recent) < 2:
        return most
    if recent[-1] < tolerance:
        return min(most, 1)
    fall = (math.log(recent[0]) - math.log(recent[-1])) / (len(recent) - 1)
    if fall <= 0:
        return most
    # A run ends when two rounds in a row meet the tolerance, hence one more.
    return min(most, math.ceil((math.log(recent[-1]) - math.log(tolerance)) / fall) + 1)


def seconds_left(rounds: Sequence[pb.RoundView], limit: int, tolerance: float) -> float:
    """The rounds left times the median length of recent rounds; NaN before the first round of the method."""
    worked = [one for one in rounds if one.round > 0]
    if not worked:
        return math.nan
    usual = median(one.seconds for one in worked[-_RECENT:])
    return usual * rounds_left([one.change for one in worked], worked[-1].round, limit, tolerance)

"""What a step asks the runner to do, in the imperative; and the reply to a message."""

from __future__ import annotations

from dataclasses import dataclass

from dcfpca.run_references import AttemptRef
from dcfpca.wire.receipt import Fate


@dataclass(frozen=True, slots=True)
class Reply:
    """Tell the sender what became of its message."""

    fate: Fate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Add this accepted update to the running sum of its attempt."""

    ref: AttemptRef
    participant: str
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Sum:
    """Compute the next consensus from the running sum of this attempt."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete the stored updates and the running sum of this attempt, which is over."""

    ref: AttemptRef


@dataclass(frozen=True, slots=True)
class RenumberConsensus:
    """Give the consensus of the open round this round number; `final` when it becomes the run's result."""

    round: int
    final: bool = False


Effect = Reply | Accumulate | Sum | Discard | RenumberConsensus

ACCEPTED = Reply(Fate.ACCEPTED)
DUPLICATE = Reply(Fate.DUPLICATE, "this message had been accepted before")

"""What a step asks the shell to do, in the imperative; and what became of a message."""

from __future__ import annotations

from dataclasses import dataclass

from dcfpca.fate import Fate


@dataclass(frozen=True, slots=True)
class Reply:
    """Tell the sender what became of its message."""

    fate: Fate
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Accumulate:
    """Add this update, which has been accepted, to the running sum of its attempt."""

    round: int
    attempt: int
    participant: str
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Sum:
    """Form the consensus from the running sum of this attempt."""

    round: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Forget the stored updates and the running sum of this attempt; it is over."""

    round: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Recast:
    """Let the consensus of the open round be that of this round from now on; the final one if the run is `over`."""

    round: int
    over: bool = False


Effect = Reply | Accumulate | Sum | Discard | Recast

ACCEPTED = Reply(Fate.ACCEPTED)
DUPLICATE = Reply(Fate.DUPLICATE, "this message had been accepted before")

"""The name of one attempt at one round of one run, as the wire, the stores and both services use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class AttemptRef:
    """One attempt at one round of one run; of the same run, later attempts compare greater."""

    run_id: str
    round: int
    attempt: int

    def __str__(self) -> str:
        return f"round {self.round} attempt {self.attempt}"

"""How many closing rounds a run may have, and the bound on a rank that is to be found."""

from __future__ import annotations

BOUND_ROUNDS = 6  # refinement rounds at the full width, with entries hidden
MOST_ROUNDS = 16  # at the chosen rank
FEW, MOST = 10, 32
WIDEST_CLOSING = 512
"""Closing rounds exchange a scalar for each pair of directions, so that their number is bounded."""
CLOSING_ROUNDS = BOUND_ROUNDS + 1 + MOST_ROUNDS + 1


def automatic_bound(rows: int) -> int:
    """The largest rank tried when none is given: half of few rows, 10 of some, a sixteenth of many, at most 32.

    Wider, a run on noisy data of many features takes long to rest; an exact rank above is told as a bound reached.
    """
    return max(1, min(rows // 2, max(FEW, rows // 16), MOST)) if rows else 0

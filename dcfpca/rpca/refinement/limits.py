"""How many closing rounds a run may have, and the bound on a rank that is to be found."""

from __future__ import annotations

BOUND_ROUNDS = 6  # refinement rounds at the full width, with entries hidden
MOST_ROUNDS = 16  # at the chosen rank
CLOSING_ROUNDS = BOUND_ROUNDS + 1 + MOST_ROUNDS + 1


def auto_bound(rows: int) -> int:
    """The largest rank tried when none is given: half of few rows, 10 of some, a sixteenth of very many."""
    return min(rows // 2, max(10, rows // 16)) if rows > 1 else rows

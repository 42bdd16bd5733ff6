"""What the neighbour graphs of both editions have in common: when they begin, and how sampling tails are counted."""

from __future__ import annotations

from math import comb

COMPLETE_UP_TO = 64
"""Up to so many members everybody is everybody's neighbour."""


def ways(members: int, corrupt: int, drawn: int, at_least: int) -> int:
    """In how many ways `drawn` of the members contain at least so many conspirators."""
    return sum(
        comb(corrupt, found) * comb(members - corrupt, drawn - found)
        for found in range(max(0, at_least), min(corrupt, drawn) + 1)
    )

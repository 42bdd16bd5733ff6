"""The common part of both protocols' neighbour graphs: the size from which they are sparse, and sampling tails."""

from __future__ import annotations

from math import comb

COMPLETE_UP_TO = 64
"""Up to this many members the graph is complete."""


def ways(members: int, corrupt: int, drawn: int, at_least: int) -> int:
    """The number of ways to draw `drawn` members of whom at least `at_least` are corrupt."""
    return sum(
        comb(corrupt, found) * comb(members - corrupt, drawn - found)
        for found in range(max(0, at_least), min(corrupt, drawn) + 1)
    )

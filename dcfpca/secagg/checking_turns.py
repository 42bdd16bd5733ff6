"""Whose turn it is to check a sum that is too large for everybody to check it in every round.

A lie about a sum, or about what follows from it, must be told to all members alike, or the masks of the next round do
not cancel. So one member that checks is enough, and there is one in every round. Turns are public: the aggregator shows
the sum to the member whose turn it is in place of the consensus, and nothing is sent twice. Beside its turns a member
checks now and then by a draw of its own.
"""

from __future__ import annotations

from dcfpca.secagg.encoding import digest

TURNS = 8
"""A member of a cohort of at least so many has its turn in one round of so many."""


def members_in_turn(cohort: tuple[str, ...], round: int) -> frozenset[str]:
    """The members that check the sum from which this round follows; never none."""
    turns = min(TURNS, len(cohort))
    return frozenset(name for place, name in enumerate(cohort) if (place + round) % turns == 0)


def unforeseen_draw(roots: tuple[bytes, ...], round: int) -> int:
    """A number below 256 that nobody but this member knows, from the roots that it has with all the others.

    It is the same whenever it is asked for: a check that was begun is not left out when the round is announced again.
    """
    return digest("checking-draw", round, *roots)[0]

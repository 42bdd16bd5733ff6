"""The masking graph: complete up to 64 members, beyond that k neighbours each on a ring.

Nothing is recovered from dropouts, so only one thing must be prevented: two stretches of k/2 neighbouring places, all
held by conspirators, would cut the ring into parts whose sums could be told apart. k is the smallest even number for
which a random ring has even one such gap with probability below 2^−SECURITY_BITS when CORRUPT_SHARE of the members
conspire. The order comes from the group secret, which nobody can steer (see `group_secret`), so no margin for repeated
attempts is needed.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import ceil, comb

from dcfpca.secagg.encoding import digest

COMPLETE_UP_TO = 64
"""Up to this many members the graph is complete."""
CORRUPT_SHARE = Fraction(1, 3)
SECURITY_BITS = 40


def neighbours_of(name: str, cohort: tuple[str, ...], group_secret: bytes) -> tuple[str, ...]:
    """The neighbours with which a member masks, in the order of names."""
    degree = degree_for(len(cohort))
    if degree == len(cohort) - 1:
        return tuple(member for member in cohort if member != name)
    ring = sorted(cohort, key=lambda member: digest("ring", group_secret, member))
    place, reach = ring.index(name), degree // 2
    around = [step for step in range(-reach, reach + 1) if step]
    return tuple(sorted(ring[(place + step) % len(ring)] for step in around))


@lru_cache(maxsize=64)
def degree_for(members: int) -> int:
    """k for a cohort of this size; members − 1 means a complete graph."""
    if members <= COMPLETE_UP_TO:
        return members - 1
    return next((k for k in range(2, members - 1, 2) if _secure(members, k // 2)), members - 1)


def _secure(members: int, gap: int) -> bool:
    bad = comb(ceil(CORRUPT_SHARE * members), gap)
    return members * bad << SECURITY_BITS <= comb(members, gap)

"""The masking graph: complete up to 64 members, beyond that k neighbours each on a ring.

The ring is a permutation seeded by the roster with all advertised keys (Harary graph; Bell et al., CCS 2020).
A participant's neighbourhood is itself and the k/2 before and after it, so k is even unless the graph is complete.

How k is chosen. The aggregator may conspire with up to CORRUPT_SHARE of the roster and lie about dropouts. With a
neighbourhood of d = k + 1, of whom t must take part at every step, two things must not happen anywhere on the ring:
 * 2t − d or more conspirators in one neighbourhood: they and half of the rest each way open both its secrets;
 * k/2 places in a row made up of conspirators and at most d − t declared dropouts: that would cut the ring in two.
k is the smallest even number for which a random ring has either with probability below 2^−SECURITY_BITS (exact
hypergeometric tails, union over the n places). The 20 bits above the usual 40 are for an aggregator that tries a
million rosters until it likes the ring.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from math import ceil, comb

from dcfpca.secagg.canonical_encoding import digest
from dcfpca.secagg.dropout_recovery.context import Context
from dcfpca.secagg.neighbour_sampling import COMPLETE_UP_TO, ways

CORRUPT_SHARE = Fraction(1, 10)
NEIGHBOURHOOD_SHARE = Fraction(3, 4)
SECURITY_BITS = 60


@dataclass(frozen=True, slots=True)
class Graph:
    """The ring of members, the number of neighbours of each, and the threshold of a neighbourhood."""

    ring: tuple[str, ...]
    degree: int
    threshold: int
    _position: dict[str, int] = field(repr=False, compare=False)

    def neighbourhood(self, name: str) -> tuple[str, ...]:
        """The participant and its neighbours, in the order of their places."""
        start, size = self._position[name] - self.degree // 2, len(self.ring)
        return tuple(self.ring[(start + step) % size] for step in range(self.degree + 1))

    def place(self, owner: str, holder: str) -> int:
        """The holder's position in the owner's neighbourhood, from 1: the x-coordinate of its shares."""
        offset = self._position[holder] - self._position[owner] + self.degree // 2
        return offset % len(self.ring) + 1


def graph_of(context: Context, members: tuple[str, ...], roster_digest: bytes) -> Graph:
    """The graph that follows from this roster, the same for every holder of it."""
    ring = tuple(sorted(members, key=lambda name: digest("ring", roster_digest, name)))
    degree = degree_for(len(members))
    complete = degree == len(members) - 1
    return Graph(
        ring=ring,
        degree=degree,
        threshold=context.threshold if complete else _local_threshold(context, degree),
        _position={name: position for position, name in enumerate(ring)},
    )


@lru_cache(maxsize=64)
def degree_for(members: int) -> int:
    """k for a roster of this size; members − 1 means a complete graph."""
    if members <= COMPLETE_UP_TO:
        return members - 1
    return next((k for k in range(2, members - 1, 2) if _secure(members, k)), members - 1)


def _local_threshold(context: Context, degree: int) -> int:
    share = max(NEIGHBOURHOOD_SHARE, Fraction(context.threshold, len(context.cohort)))
    return ceil(share * (degree + 1))


def _secure(members: int, degree: int) -> bool:
    corrupt, size = ceil(CORRUPT_SHARE * members), degree + 1
    needed = ceil(NEIGHBOURHOOD_SHARE * size)
    opens = ways(members, corrupt, size, 2 * needed - size), comb(members, size)
    cuts = ways(members, corrupt, degree // 2, degree // 2 - (size - needed)), comb(members, degree // 2)
    return all(members * bad << SECURITY_BITS <= total for bad, total in (opens, cuts))

"""The aggregator's side: checks the messages it relays and adds masked updates; holds no secret."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from dcfpca.secagg.errors import ChangedUpdate, OutOfTurn, ReplayedKey, TamperedShare
from dcfpca.secagg.fixed_point import FloatArray, RingArray, decode, dtype_of, from_ring, lifted
from dcfpca.secagg.homomorphic_mac import P
from dcfpca.secagg.keys import Verify
from dcfpca.secagg.messages import (
    Advert,
    Masked,
    Opening,
    Roster,
    RunTerms,
    SealedShare,
    context_of,
    sum_digest,
)
from dcfpca.secagg.set_up import check_advert, check_distinct, check_roster, check_share, roster_digest


def accept_advert(terms: RunTerms, known: Mapping[str, Advert], advert: Advert, verify: Verify) -> None:
    """Check an advert at intake, so that no member can spoil the roster for the others."""
    check_advert(terms, advert, verify)
    before = known.get(advert.name)
    if before is not None and before != advert:
        sentence = f"{advert.name} advertised another key for this run before"
        raise ReplayedKey(sentence, "a site that lost its keys cannot rejoin the run", accused=advert.name)
    check_distinct([*(other for name, other in known.items() if name != advert.name), advert])


def close_roster(terms: RunTerms, known: Mapping[str, Advert], verify: Verify) -> Roster:
    """The roster, once everybody has advertised; fewer raise IncompleteCohort."""
    roster = Roster(tuple(known[name] for name in sorted(known)))
    check_roster(terms, roster, verify)
    return roster


def accept_shares(
    roster: bytes, cohort: Collection[str], sender: str, identity: EllipticCurvePublicKey, shares: Iterable[SealedShare]
) -> None:
    """Exactly one share of this sender for every other member, each as the sender signed it under this roster."""
    given = list(shares)
    if [share.sender for share in given] != [sender] * len(given):
        raise TamperedShare(f"{sender} sends shares in somebody else's name", accused=sender)
    if sorted(share.receiver for share in given) != sorted(set(cohort) - {sender}):
        raise TamperedShare(f"{sender} does not send one share to every other member", accused=sender)
    for share in given:
        check_share(roster, share, identity)


def shares_for(receiver: str, shares: Iterable[SealedShare]) -> tuple[SealedShare, ...]:
    """The shares addressed to one member, in the order of senders."""
    return tuple(sorted((share for share in shares if share.receiver == receiver), key=lambda share: share.sender))


@dataclass(slots=True)
class Tally:
    """The running sum of one context, masked until all members are added."""

    context: bytes
    values: RingArray = field(repr=False)
    tag: int = 0
    members: set[str] = field(default_factory=set)

    def add(self, masked: Masked) -> None:
        """Add one member's numbers, once."""
        if masked.context != self.context:
            raise OutOfTurn(f"the update of {masked.name} is for another round, consensus or exponent")
        if masked.name in self.members:
            raise OutOfTurn(f"the update of {masked.name} is in the sum already")
        if masked.values.shape != self.values.shape or masked.values.dtype != self.values.dtype:
            raise ChangedUpdate(f"the update of {masked.name} does not have the declared size", accused=masked.name)
        if not 0 <= masked.tag < P:
            raise ChangedUpdate(f"the tag of {masked.name} is not in the field", accused=masked.name)
        np.add(self.values, masked.values, out=self.values)
        self.tag = (self.tag + masked.tag) % P
        self.members.add(masked.name)


@dataclass(frozen=True, slots=True, eq=False)
class OpenedSum:
    """The opened sum over the whole cohort, which is public. `sha256` is that of the values; `digest` names the sum
    with its tag and context, and is what the next opening carries as `previous_sum`."""

    values: RingArray = field(repr=False)
    tag: int
    numbers: FloatArray = field(repr=False)
    sha256: bytes
    digest: bytes


def begin_tally(terms: RunTerms, roster: Roster, opening: Opening) -> Tally:
    """An empty sum for the opening with all of its lifts."""
    context = context_of(terms, roster_digest(terms, roster), opening, len(opening.misfits))
    return Tally(context, np.zeros(opening.layout.size, dtype=dtype_of(terms.precision)))


def open_sum(terms: RunTerms, opening: Opening, tally: Tally) -> OpenedSum:
    """The sum, once everybody is in it; before that OutOfTurn."""
    if missing := set(terms.cohort) - tally.members:
        raise OutOfTurn(f"the sum of round {opening.round} waits for {', '.join(sorted(missing))}")
    exponents = lifted(opening.layout, opening.exponents, len(opening.misfits), terms.precision)
    integers = from_ring(tally.values, terms.precision)
    numbers = decode(integers, opening.layout, exponents, len(terms.cohort), terms.precision)
    sha256 = hashlib.sha256(tally.values.data).digest()
    return OpenedSum(tally.values, tally.tag, numbers, sha256, sum_digest(tally.context, sha256, tally.tag))

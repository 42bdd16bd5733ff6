"""The aggregator's side: checks the messages it relays and adds masked updates; holds no secret."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from dcfpca.secagg.errors import OutOfTurn, ReplayedKey, TamperedShare
from dcfpca.secagg.fixed_point import FloatArray, RingArray, decode, from_ring, lifted
from dcfpca.secagg.keys import Verify
from dcfpca.secagg.messages import (
    Advert,
    Opening,
    RunTerms,
    SealedShare,
    sum_digest,
)
from dcfpca.secagg.set_up import check_advert, check_distinct, check_share


def accept_advert(terms: RunTerms, known: Mapping[str, Advert], advert: Advert, verify: Verify) -> None:
    """Check an advert at intake, so that no member can spoil the roster for the others."""
    check_advert(terms, advert, verify)
    before = known.get(advert.name)
    if before is not None and before != advert:
        sentence = f"{advert.name} advertised another key for this run before"
        raise ReplayedKey(sentence, "a site that lost its keys cannot rejoin the run", accused=advert.name)
    check_distinct([*(other for name, other in known.items() if name != advert.name), advert])


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


@dataclass(frozen=True, slots=True, eq=False)
class OpenedSum:
    """The opened sum over the whole cohort, which is public. `sha256` is that of the values; `digest` names the sum
    with its tag and context, and is what the next opening carries as `previous_sum`."""

    values: RingArray = field(repr=False)
    tag: int
    numbers: FloatArray = field(repr=False)
    sha256: bytes
    digest: bytes


def open_sum(
    terms: RunTerms, opening: Opening, context: bytes, values: RingArray, tag: int, members: Collection[str]
) -> OpenedSum:
    """The sum of what these members sent in a context, once everybody is in it; before that OutOfTurn."""
    if missing := set(terms.cohort).difference(members):
        raise OutOfTurn(f"the sum of round {opening.round} waits for {', '.join(sorted(missing))}")
    exponents = lifted(opening.layout, opening.exponents, len(opening.misfits), terms.precision)
    numbers = decode(from_ring(values, terms.precision), opening.layout, exponents, len(terms.cohort), terms.precision)
    sha256 = hashlib.sha256(values.data).digest()
    return OpenedSum(values, tag, numbers, sha256, sum_digest(context, sha256, tag))

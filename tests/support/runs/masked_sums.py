"""What an aggregator does with the messages of a secure sum, one member at a time; and checks that only tests make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from dcfpca.secagg.aggregator import OpenedSum, open_sum
from dcfpca.secagg.errors import ChangedUpdate, Evidence, OutOfTurn, SwappedKey
from dcfpca.secagg.fixed_point import HEADROOM, LIFT, MOST_LIFTS, RING, ROOM, RingArray
from dcfpca.secagg.homomorphic_mac import P
from dcfpca.secagg.keys import Verify, signed
from dcfpca.secagg.messages import Advert, Masked, Opening, Roster, RunTerms, context_of, evidence_statement
from dcfpca.secagg.set_up import check_roster, roster_digest


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

    def open(self, terms: RunTerms, opening: Opening) -> OpenedSum:
        """The sum, once everybody is in it."""
        return open_sum(terms, opening, self.context, self.values, self.tag, self.members)


def begin_tally(terms: RunTerms, roster: Roster, opening: Opening) -> Tally:
    """An empty sum for the opening with all of its lifts."""
    context = context_of(terms, roster_digest(terms, roster), opening, len(opening.misfits))
    return Tally(context, np.zeros(opening.layout.size, dtype=RING[terms.precision]))


def close_roster(terms: RunTerms, known: Mapping[str, Advert], verify: Verify) -> Roster:
    """The roster, once everybody has advertised; fewer raise IncompleteCohort."""
    roster = Roster(tuple(known[name] for name in sorted(known)))
    check_roster(terms, roster, verify)
    return roster


def check_evidence(terms: RunTerms, author: str, evidence: Evidence, seal: tuple[bytes, bytes], verify: Verify) -> None:
    """Raise unless this member signed the evidence; `seal` is its certificate and signature."""
    certificate, signature = seal
    if not signed(verify(certificate, author), signature, evidence_statement(terms, author, evidence)):
        raise SwappedKey(f"{author} did not sign this evidence")


def expand(key: bytes, size: int) -> bytes:
    """The first `size` bytes of the key's stream."""
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def resolution_bits(members: int, precision: int) -> int:
    """The fewest bits that are left of a sum's largest number, whatever misfits were reported."""
    return ROOM[precision] - members.bit_length() - HEADROOM[precision] - MOST_LIFTS * LIFT[precision]

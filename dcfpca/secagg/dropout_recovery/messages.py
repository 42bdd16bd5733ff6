"""The messages of one attempt, field by field as on the wire, and the statements that are signed.

Sequence: Advert → Roster → SealedShare… → Bound → Delivery → (masked update) → Survivors → Attestation →
UnmaskRequest → Reveal. Names are sorted tuples; all bytes are raw.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dcfpca.secagg.canonical_encoding import canonical, digest, names_field
from dcfpca.secagg.dropout_recovery.context import Context


@dataclass(frozen=True, slots=True)
class Advert:
    """Participant → aggregator → peers: the public keys of one attempt, signed with the mTLS identity key.

    `binding` is `Context.binding`, by which a replay is told from a forgery. `commitment` binds the self-mask seed.
    """

    name: str
    seal_key: bytes
    mask_key: bytes
    commitment: bytes
    binding: bytes
    certificate: bytes
    signature: bytes

    def statement(self) -> bytes:
        """The statement that the owner signs."""
        return canonical("advertise", self.binding, self.name, self.seal_key, self.mask_key, self.commitment)


@dataclass(frozen=True, slots=True)
class Roster:
    """Aggregator → participant: who advertised, and the adverts of the receiver's neighbourhood.

    `root` is over the adverts of all members in order, `path` leads to it from the receiver's own advert.
    """

    members: tuple[str, ...]
    root: bytes
    path: tuple[bytes, ...]
    adverts: tuple[Advert, ...]


@dataclass(frozen=True, slots=True)
class SealedShare:
    """Participant → aggregator → one peer: the sender's two shares for the receiver, sealed."""

    sender: str
    receiver: str
    sealed: bytes


@dataclass(frozen=True, slots=True)
class Bound:
    """Participant → aggregator: every number of the update is below 2^exponent in magnitude."""

    name: str
    exponent: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """The masking participants (they shared and stated a bound), and the common exponent."""

    members: tuple[str, ...]
    exponent: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """Aggregator → participant: the agreement, and the sealed shares addressed to the receiver."""

    agreement: Agreement
    shares: tuple[SealedShare, ...]


@dataclass(frozen=True, slots=True)
class Survivors:
    """Aggregator → participant: whose masked updates are in the sum."""

    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Attestation:
    """Participant → aggregator → peers: the survivors I was shown, signed."""

    name: str
    signature: bytes


@dataclass(frozen=True, slots=True)
class UnmaskRequest:
    """Aggregator → participant: release your shares, the neighbourhood agrees on the survivors."""

    survivors: Survivors
    attestations: tuple[Attestation, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """One share of one secret of its owner."""

    owner: str
    value: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reveal:
    """Participant → aggregator: shares of survivors' self-mask seeds and of dropouts' mask keys."""

    name: str
    seed_shares: tuple[Share, ...]
    key_shares: tuple[Share, ...]


def advert_leaf(advert: Advert) -> bytes:
    """The advert's leaf in the tree over all of them."""
    return digest("merkle-leaf", advert.statement())


def roster_digest(context: Context, members: tuple[str, ...], root: bytes) -> bytes:
    """The digest of the roster, with all advertised keys."""
    return digest("roster", context.binding, names_field(members), root)


def agreement_digest(roster: bytes, agreement: Agreement) -> bytes:
    """The digest of the roster, the masking participants and the exponent; bound into every mask."""
    return digest("agreement", roster, names_field(agreement.members), agreement.exponent)


def survivors_statement(agreement: bytes, survivors: Survivors) -> bytes:
    """The statement that each survivor signs."""
    return canonical("survivors", agreement, names_field(survivors.members))

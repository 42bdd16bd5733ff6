"""The messages: adverts and sealed shares once a run; an opening and a masked update (or a misfit) each round."""

from __future__ import annotations

from dataclasses import dataclass, field

from dcfpca.secagg.fixed_cohort.block_layout import BlockLayout
from dcfpca.secagg.fixed_cohort.domain_separation import canonical
from dcfpca.secagg.ring_fixed_point import RingArray


@dataclass(frozen=True, slots=True)
class Advert:
    """Participant → aggregator → peers: the X25519 key of the run and a commitment to the share of the group secret.

    `binding` is `RunTerms.binding`, by which a replay is told from a forgery.
    """

    name: str
    key: bytes
    commitment: bytes
    binding: bytes
    certificate: bytes
    signature: bytes

    def statement(self) -> bytes:
        """The statement that the owner signs."""
        return canonical("advert", self.binding, self.name, self.key, self.commitment)


@dataclass(frozen=True, slots=True)
class Roster:
    """Aggregator → participant: the adverts of the whole cohort, in the order of names."""

    adverts: tuple[Advert, ...]


@dataclass(frozen=True, slots=True)
class SealedShare:
    """Participant → aggregator → one peer: the sender's share of the group secret. The signature covers the roster."""

    sender: str
    receiver: str
    sealed: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Misfit:
    """Participant → aggregator → peers: under this context my update does not fit; signed."""

    name: str
    context: bytes
    certificate: bytes
    signature: bytes

    def statement(self) -> bytes:
        """The statement that the participant signs."""
        return canonical("misfit", self.context, self.name)


@dataclass(frozen=True, slots=True)
class Opening:
    """Aggregator → participant: a round.

    `consensus` and `previous_sum` are digests; the receiver computes the former from every byte it was sent.
    `exponents` has one for each block of the layout; each of the misfits, in order, raises all of them by one lift.
    """

    round: int
    consensus: bytes
    previous_sum: bytes
    layout: BlockLayout
    exponents: tuple[int, ...]
    misfits: tuple[Misfit, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Masked:
    """Participant → aggregator: the update in fixed point and its tag, both masked."""

    name: str
    context: bytes
    values: RingArray = field(repr=False)
    tag: int

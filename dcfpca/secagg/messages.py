"""What all members of a run agree to, what the parties say to each other, and the digests that bind it together.

Adverts and sealed shares are said once a run; an opening and a masked update (or a misfit) in each round. The context
of a round is a digest of everything that the aggregator sent, and is bound into every mask.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

from dcfpca.errors import BadInput
from dcfpca.secagg.encoding import canonical, digest, names_field
from dcfpca.secagg.errors import Evidence, InventedParticipant, SecureSumRefusal, SwappedKey
from dcfpca.secagg.fixed_point import BlockLayout, RingArray, lifted
from dcfpca.secagg.keys import SigningIdentity, Verify, signed

MOST_MEMBERS = 1 << 14
NO_SUM = bytes(32)
"""The digest that stands for the previous sum in a round that has none."""
TURNS = 8
"""In a cohort of at least this size, each member checks a large sum once in this many rounds."""


@dataclass(frozen=True)
class RunTerms:
    """The terms of a run, equal at all members. `cohort` is sorted, and every sum of the run is over all of it."""

    run: str
    spec_digest: bytes
    cohort: tuple[str, ...]
    last_round: int
    precision: int = 64

    def __post_init__(self) -> None:
        if list(self.cohort) != sorted(set(self.cohort)):
            raise BadInput("the cohort is not in order, or names a participant twice")
        if not 2 <= len(self.cohort) <= MOST_MEMBERS:
            raise BadInput(f"a cohort of {len(self.cohort)} has no secure sum", f"take 2 to {MOST_MEMBERS} members")
        if self.precision not in (32, 64):
            raise BadInput(f"a precision of {self.precision} bits does not exist", "choose 64 or 32")

    @cached_property
    def binding(self) -> bytes:
        """32 bytes that differ whenever anything about the run differs."""
        return digest("terms", self.run, self.spec_digest, names_field(self.cohort), self.last_round, self.precision)


@dataclass(frozen=True, slots=True)
class Advert:
    """Participant → aggregator → peers: the X25519 key of the run, its ML-KEM-768 key, and a commitment to the share of
    the group secret.

    `binding` is `RunTerms.binding`, by which a replay is told from a forgery.
    """

    name: str
    key: bytes
    commitment: bytes
    binding: bytes
    certificate: bytes
    signature: bytes
    kem_key: bytes = b""  # empty in runs that earlier builds stored; no site accepts those

    def statement(self) -> bytes:
        """The statement that the owner signs."""
        return canonical("advert", self.binding, self.name, self.key, self.kem_key, self.commitment)


@dataclass(frozen=True, slots=True)
class Roster:
    """Aggregator → participant: the adverts of the whole cohort, in the order of names."""

    adverts: tuple[Advert, ...]


@dataclass(frozen=True, slots=True)
class SealedShare:
    """Participant → aggregator → one peer: the sender's share of the group secret and its part of the pair's root.

    `sealed` is an ML-KEM-768 ciphertext and what its secret seals. The signature covers the roster.
    """

    sender: str
    receiver: str
    sealed: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Misfit:
    """Participant → aggregator → peers: a signed statement that the update does not fit under this context."""

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


def opening_digest(terms: RunTerms, roster: bytes, opening: Opening) -> bytes:
    """The digest of the run, the roster and the round with its consensus, previous sum, layout and first exponents."""
    return digest(
        "opening",
        terms.run,
        terms.spec_digest,
        roster,
        opening.round,
        opening.consensus,
        opening.previous_sum,
        opening.layout.statement,
        canonical("exponents", *opening.exponents),
    )


def context_of(terms: RunTerms, roster: bytes, opening: Opening, lifts: int) -> bytes:
    """The digest of the opening and of the exponents after `lifts` lifts."""
    exponents = lifted(opening.layout, opening.exponents, lifts, terms.precision)
    return digest("context", opening_digest(terms, roster, opening), canonical("exponents", *exponents))


def consensus_digest(consensus: hashlib._Hash, stage: str = "", memory_sha256: bytes = b"") -> bytes:
    """The digest of a consensus and of what is told beside it, given a SHA-256 over its bytes, which stays as it is."""
    whole = consensus.copy()
    if stage:
        whole.update(stage.encode() + b"\0" + memory_sha256)
    return digest("consensus", whole.digest())


def sum_digest(context: bytes, total_sha256: bytes, tag: int) -> bytes:
    """The digest of an opened sum with its tag; the next opening carries it as `previous_sum`."""
    return digest("sum", context, total_sha256, tag)


def members_in_turn(cohort: tuple[str, ...], round: int) -> frozenset[str]:
    """The members that check the sum from which this round follows, where it is too large for all of them; never none.

    One is enough: a lie about a sum must be told to all members alike, or the masks of the next round do not cancel.
    Turns are public, so that the aggregator sends the sum in place of the consensus to whoever checks it. Besides its
    turns, a member also checks in rounds that it draws for itself.
    """
    turns = min(TURNS, len(cohort))
    return frozenset(name for place, name in enumerate(cohort) if (place + round) % turns == 0)


def unforeseen_draw(roots: tuple[bytes, ...], round: int) -> int:
    """A number below 256 that only this member knows, derived from the roots that it shares with all the others. It is
    the same whenever it is asked for, so a check that was begun is not skipped when the round is announced again.
    """
    return digest("checking-draw", round, *roots)[0]


@dataclass(frozen=True, slots=True)
class Complaint:
    """Participant → aggregator → operator. An empty `accused` accuses the aggregator or nobody in particular."""

    author: str
    accused: str
    error: str
    sentence: str
    certificate: bytes
    signature: bytes

    def statement(self, binding: bytes) -> bytes:
        """The statement that the author signs."""
        return canonical("complaint", binding, self.author, self.accused, self.error, self.sentence)


def evidence_statement(terms: RunTerms, author: str, evidence: Evidence) -> bytes:
    """The statement that a site signs about a lie of the aggregator."""
    digests = (evidence.context, evidence.announced, evidence.found)
    return canonical("evidence", terms.binding, author, evidence.round, *digests)


def complain(terms: RunTerms, identity: SigningIdentity, error: SecureSumRefusal) -> Complaint:
    """The complaint that follows from a refusal."""
    unsigned = Complaint(
        identity.name, error.accused, type(error).__name__, str(error), identity.certificate, signature=b""
    )
    signature = identity.sign(unsigned.statement(terms.binding))
    return Complaint(
        unsigned.author, unsigned.accused, unsigned.error, unsigned.sentence, unsigned.certificate, signature
    )


def check_complaint(terms: RunTerms, complaint: Complaint, verify: Verify) -> None:
    """Raise unless a member of the cohort signed this complaint about this run."""
    if complaint.author not in terms.cohort or complaint.accused not in ("", *terms.cohort):
        raise InventedParticipant(f"the complaint of {complaint.author} is not between members of run {terms.run}")
    identity = verify(complaint.certificate, complaint.author)
    if not signed(identity, complaint.signature, complaint.statement(terms.binding)):
        raise SwappedKey(f"{complaint.author} did not sign this complaint")

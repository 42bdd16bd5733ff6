"""The participant's side of one attempt: advertise, share, state a bound, mask, attest, reveal.

Two rules. A message that is refused changes nothing. And a side stays bound to what it accepted in the attempt: the
caller saves the seed and each accepted message before it sends the answer, so that a new side from the same seed, given
the same messages, sends the same bytes again and never two answers that together would open an update.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

import numpy as np

from dcfpca.secagg import ring_fixed_point
from dcfpca.secagg.dropout_recovery import keys, pairwise_keys, shamir
from dcfpca.secagg.dropout_recovery.checks import check_attestation, check_members, check_neighbourhood
from dcfpca.secagg.dropout_recovery.context import Context
from dcfpca.secagg.dropout_recovery.messages import (
    Advert,
    Agreement,
    Attestation,
    Bound,
    Delivery,
    Reveal,
    Roster,
    SealedShare,
    Share,
    Survivors,
    UnmaskRequest,
    agreement_digest,
    survivors_statement,
)
from dcfpca.secagg.dropout_recovery.neighbours import Neighbours, verify_roster
from dcfpca.secagg.errors import (
    BelowThreshold,
    BothShares,
    ChangedAgreement,
    ChangedExponent,
    ChangedRoster,
    ChangedUpdate,
    DifferencedSum,
    InconsistentSurvivors,
    InventedParticipant,
    OutOfTurn,
    SurvivorDropped,
    TamperedShare,
)
from dcfpca.secagg.identity import SigningIdentity
from dcfpca.secagg.keys import seal, unseal
from dcfpca.secagg.masks import add_mask
from dcfpca.secagg.ring_fixed_point import FloatArray, RingArray


@dataclass(frozen=True, slots=True)
class Pinned:
    """The commitments of this side in this attempt; digests and small numbers, nothing secret."""

    roster: bytes = b""
    update: bytes = b""
    bound: int | None = None
    agreement: bytes = b""
    exponent: int | None = None
    survivors: bytes = b""
    released: bool = False


@dataclass(frozen=True, slots=True)
class _SharePair:
    """One place's shares of an owner's two secrets, of which at most one is ever released."""

    seed: bytes = field(repr=False)
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Held:
    """The agreement, and the shares this side holds of each masking neighbour's secrets and of its own."""

    agreement: Agreement
    digest: bytes
    shares: dict[str, _SharePair]


class ParticipantSide:
    """One participant in one attempt. `seed` is 32 bytes of fresh entropy that serves this attempt alone.

    `opened_before` is `opened` of an earlier attempt at the same round, if there was one: a site answers every attempt
    at a round with the same update, so two sums over different survivors would differ by single sites' updates.
    """

    def __init__(
        self,
        context: Context,
        identity: SigningIdentity,
        seed: bytes,
        opened_before: Survivors | None = None,
        least_bound: int = ring_fixed_point.MIN_EXPONENT,
    ) -> None:
        """`least_bound` is the smallest exponent that this side states, however small its numbers are."""
        self.context = context
        self._least_bound = least_bound
        self._pinned = Pinned()
        self._stated: FloatArray | None = None
        self.opened = opened_before
        self._identity = identity
        self._secrets = keys.secrets_from(context, identity.name, seed)
        self._advert = self._make_advert()
        self._neighbours: Neighbours | None = None
        self._own_shares: dict[str, _SharePair] = {}
        self._held: _Held | None = None

    @property
    def pinned(self) -> Pinned:
        """The commitments of this side so far, for inspection; a new side given the same messages has the same."""
        if self._stated is not None and not self._pinned.update:
            self._pinned = replace(self._pinned, update=_update_digest(self._stated))
        return self._pinned

    @property
    def name(self) -> str:
        """The participant's name."""
        return self._identity.name

    def advertise(self) -> Advert:
        """Step 1: the public keys of this attempt, signed."""
        return self._advert

    def share(self, roster: Roster) -> tuple[SealedShare, ...]:
        """Step 2: verify the roster, and give every neighbour its sealed shares of both secrets."""
        met = verify_roster(self.context, self._advert, self._secrets, roster, self._identity.verify)
        if self._pinned.roster not in (b"", met.digest):
            raise ChangedRoster("this is a second, different roster in one attempt")
        self._own_shares = self._split(met)
        self._neighbours = met
        self._pinned = replace(self._pinned, roster=met.digest)
        return tuple(self._sealed(met, peer) for peer in sorted(met.peers))

    def state_bound(self, vector: FloatArray) -> Bound:
        """Step 3: once the local step is done, a power of two that bounds its update. Binds to this update."""
        if not self._is_stated(vector):
            exponent = max(ring_fixed_point.bounding_exponent(vector), self._least_bound)
            before = self.pinned.update
            if before and _update_digest(vector) != before:
                raise ChangedUpdate("a different update was stated in this attempt before")
            self._state(vector, exponent)
        assert self._pinned.bound is not None
        return Bound(self.name, self._pinned.bound)

    def agree(self, delivery: Delivery) -> None:
        """Step 4, first half: check who masks and with which exponent, and open the shares from the neighbours."""
        met, agreement = self._met(), delivery.agreement
        self._check_agreement(met, agreement)
        digest = agreement_digest(met.digest, agreement)
        if self._pinned.agreement not in (b"", digest):
            raise ChangedAgreement("this is a second, different set of masking participants in one attempt")
        self._held = _Held(agreement, digest, self._opened(met, delivery))
        self._pinned = replace(self._pinned, agreement=digest, exponent=agreement.exponent)

    def mask(self, vector: FloatArray) -> RingArray:
        """Step 4, second half: the update in fixed point under its own mask and those with the neighbours."""
        met, held = self._met(), self._agreed()
        if not self._is_stated(vector) and _update_digest(vector) != self.pinned.update:
            raise ChangedUpdate("this is not the update whose bound was stated")
        exponent, count = held.agreement.exponent, len(held.agreement.members)
        masked = ring_fixed_point.encode(vector, exponent, count, self.context.precision)
        add_mask(masked, pairwise_keys.self_mask_key(self._secrets.self_mask, held.digest, self.name))
        for peer in held.shares.keys() & met.peers.keys():
            key = pairwise_keys.pair_mask_key(met.peers[peer].mask_secret, held.digest, self.name, peer)
            pairwise_keys.apply_pair_mask(masked, key, self.name, peer)
        return masked

    def attest(self, survivors: Survivors) -> Attestation:
        """Step 5: sign the survivors, once; only a set with this participant in it, and large enough."""
        met, held = self._met(), self._agreed()
        check_members(self.context, survivors.members, held.agreement.members, "survivors")
        if self.name not in survivors.members:
            raise SurvivorDropped(f"the aggregator calls {self.name} a dropout, though it is here and answers")
        check_neighbourhood(met.graph, self.name, frozenset(survivors.members), "survivors")
        statement = survivors_statement(held.digest, survivors)
        digest = hashlib.sha256(statement).digest()
        if self._pinned.survivors not in (b"", digest):
            raise InconsistentSurvivors("these are not the survivors that were signed in this attempt before")
        if self.opened not in (None, survivors):
            raise DifferencedSum("this round was opened before, for other survivors than these")
        self._pinned = replace(self._pinned, survivors=digest)
        return Attestation(self.name, self._identity.sign(statement))

    def reveal(self, request: UnmaskRequest) -> Reveal:
        """Step 6: shares of the survivors' seeds and the dropouts' keys, if the neighbourhood signed the same set."""
        met, held = self._met(), self._agreed()
        self._check_request(met, held, request)
        alive = frozenset(request.survivors.members)
        owners = sorted(held.shares)
        self._pinned = replace(self._pinned, released=True)
        self.opened = request.survivors
        return Reveal(
            name=self.name,
            seed_shares=tuple(Share(owner, held.shares[owner].seed) for owner in owners if owner in alive),
            key_shares=tuple(Share(owner, held.shares[owner].key) for owner in owners if owner not in alive),
        )

    def _is_stated(self, vector: FloatArray) -> bool:
        """True if this array is the one whose bound was stated."""
        return vector is self._stated

    def _state(self, vector: FloatArray, exponent: int) -> None:
        """Bind to this update: a read-only array by identity, any other by its digest."""
        if not vector.flags.writeable:
            self._stated = vector
            self._pinned = replace(self._pinned, bound=exponent)
        else:
            self._pinned = replace(self._pinned, update=_update_digest(vector), bound=exponent)

    def _make_advert(self) -> Advert:
        unsigned = Advert(
            name=self.name,
            seal_key=self._secrets.seal.public_key().public_bytes_raw(),
            mask_key=self._secrets.mask.public_key().public_bytes_raw(),
            commitment=keys.commitment(self.context, self.name, self._secrets.self_mask),
            binding=self.context.binding,
            certificate=self._identity.certificate,
            signature=b"",
        )
        return replace(unsigned, signature=self._identity.sign(unsigned.statement()))

    def _split(self, met: Neighbours) -> dict[str, _SharePair]:
        """Shares of both secrets for the neighbourhood; bound to the roster: another gives other polynomials."""
        places, threshold = range(1, len(met.around) + 1), met.graph.threshold
        of_seed, of_key = (
            shamir.split(secret, threshold, places, keys.derive(self._secrets.sharing, purpose, met.digest))
            for secret, purpose in (
                (self._secrets.self_mask, "split-self-mask"),
                (self._secrets.mask.private_bytes_raw(), "split-mask-key"),
            )
        )
        return dict(zip(met.around, map(_SharePair, of_seed, of_key), strict=True))

    def _sealed(self, met: Neighbours, peer: str) -> SealedShare:
        key = pairwise_keys.sealing_key(met.peers[peer].seal_secret, met.digest, self.name, peer)
        pair = self._own_shares[peer]
        return SealedShare(self.name, peer, seal(key, pair.seed + pair.key))

    def _check_agreement(self, met: Neighbours, agreement: Agreement) -> None:
        check_members(self.context, agreement.members, met.members, "masking participants")
        if self.name not in agreement.members:
            raise ChangedAgreement(f"the masking participants do not include {self.name}, to whom they were sent")
        check_neighbourhood(met.graph, self.name, frozenset(agreement.members), "masking participants")
        ring_fixed_point.check_exponent(agreement.exponent)
        bound = self._pinned.bound
        if bound is None:
            raise OutOfTurn("an exponent was announced before this participant stated its own")
        if agreement.exponent < bound:
            raise ChangedExponent(f"the exponent {agreement.exponent} would clip an update below 2^{bound}")
        if self._pinned.exponent not in (None, agreement.exponent):
            raise ChangedExponent(f"the exponent was {self._pinned.exponent} before and is {agreement.exponent} now")

    def _opened(self, met: Neighbours, delivery: Delivery) -> dict[str, _SharePair]:
        masking = frozenset(delivery.agreement.members)
        senders = [share.sender for share in delivery.shares]
        if sorted(senders) != sorted(name for name in met.peers if name in masking):
            raise TamperedShare("the sealed shares are not one from each masking neighbour")
        held = {share.sender: self._open(met, share) for share in delivery.shares}
        return held | {self.name: self._own_shares[self.name]}

    def _open(self, met: Neighbours, share: SealedShare) -> _SharePair:
        key = pairwise_keys.sealing_key(met.peers[share.sender].seal_secret, met.digest, share.sender, self.name)
        plain = unseal(key, share.sealed, share.sender)
        pair = _SharePair(seed=plain[: shamir.SHARE_BYTES], key=plain[shamir.SHARE_BYTES :])
        shamir.share_value(pair.seed)
        shamir.share_value(pair.key)
        return pair

    def _check_request(self, met: Neighbours, held: _Held, request: UnmaskRequest) -> None:
        statement = survivors_statement(held.digest, request.survivors)
        if not self._pinned.survivors:
            raise OutOfTurn("shares are wanted before this participant was shown the survivors")
        if hashlib.sha256(statement).digest() != self._pinned.survivors:
            if self._pinned.released:
                raise BothShares("shares were released for other survivors already; now the other kind is wanted")
            raise InconsistentSurvivors("shares are wanted for other survivors than this participant signed")
        attested = {attestation.name for attestation in request.attestations}
        if strangers := attested - (set(met.around) & set(request.survivors.members)):
            raise InventedParticipant(f"{min(strangers)}, who is no surviving neighbour, signed the survivors")
        for attestation in request.attestations:
            if attestation.name != self.name:
                check_attestation(met.peers[attestation.name].identity, attestation, statement)
        if len(attested | {self.name}) < met.graph.threshold:
            raise BelowThreshold(f"{len(attested)} signed the survivors, the threshold is {met.graph.threshold}")

    def _met(self) -> Neighbours:
        if self._neighbours is None:
            raise OutOfTurn("this participant has not been shown a roster yet")
        return self._neighbours

    def _agreed(self) -> _Held:
        if self._held is None:
            raise OutOfTurn("this participant has not been told who masks yet")
        return self._held


def _update_digest(vector: FloatArray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(vector, dtype=np.float64).data).digest()

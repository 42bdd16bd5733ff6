"""A site's side of a run: advert and shares once, then one answer to each opening.

Two rules hold. A refused message changes nothing. Everything that binds this side for the rest of the run is in
`record`, which the caller saves over the previous record before it sends the answer: a side that is restored from it
and given the same messages sends the same bytes, and never answers one round with two updates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.secagg import fixed_point, masks, set_up
from dcfpca.secagg import homomorphic_mac as tags
from dcfpca.secagg.errors import (
    ChangedRoster,
    ChangedUpdate,
    LostState,
    OutOfTurn,
    RoundedAway,
    RunOver,
    SwappedKey,
    TamperedShare,
    UpdateTooLarge,
    WrongSum,
)
from dcfpca.secagg.fixed_point import MOST_LIFTS, FloatArray, Integers, RingArray, fits, lifted
from dcfpca.secagg.keys import KEY_BYTES, SigningIdentity, agree
from dcfpca.secagg.messages import (
    Advert,
    Masked,
    Misfit,
    Opening,
    Roster,
    RunTerms,
    SealedShare,
    context_of,
    opening_digest,
)
from dcfpca.secagg.neighbours import neighbours_of
from dcfpca.secagg.set_up import check_roster, roster_digest
from dcfpca.secagg.state import NOTHING, SiteState, Step, check_opening, from_record, to_record

ENTROPY_BYTES = 2 * KEY_BYTES


class Numbers(Enum):
    """Which update answers an opening."""

    NEW = "compute it, and save it before it leaves"
    SAVED = "the one that was saved for this round"


class SecureSite:
    """One site in one run."""

    def __init__(self, terms: RunTerms, identity: SigningIdentity, state: SiteState) -> None:
        if identity.name not in terms.cohort:
            raise BadInput(f"{identity.name} is not in the cohort of run {terms.run}")
        if len(state.roots) != len(terms.cohort):
            raise LostState("the stored keys belong to another cohort")
        self.terms = terms
        self.state = state
        self.name = identity.name
        self._identity = identity

    @staticmethod
    def begin(terms: RunTerms, identity: SigningIdentity, entropy: bytes) -> SecureSite:
        """A side with a new key. The 64 bytes of entropy are fresh; the record is saved before the advert leaves."""
        if len(entropy) != ENTROPY_BYTES:
            raise BadInput(f"a run begins with {ENTROPY_BYTES} bytes of entropy, not {len(entropy)}")
        key, share = entropy[:KEY_BYTES], entropy[KEY_BYTES:]
        nobody = (NOTHING,) * len(terms.cohort)
        return SecureSite(terms, identity, SiteState(terms.binding, Step.ADVERTISED, key, share, nobody))

    @staticmethod
    def restore(terms: RunTerms, identity: SigningIdentity, record: bytes) -> SecureSite:
        """Restore the side that saved this record; LostState if the record is damaged or belongs to another run."""
        return SecureSite(terms, identity, from_record(record, terms.binding))

    @property
    def record(self) -> bytes:
        """The state, to be stored in place of the one before."""
        return to_record(self.state)

    def advert(self) -> Advert:
        """The public key of the run and the commitment to the share, signed. Gone once the roster is accepted."""
        if self.state.step is not Step.ADVERTISED:
            raise OutOfTurn("the key of this run was advertised, used and deleted")
        key, kem_key, committed = self._public()
        unsigned = Advert(self.name, key, committed, self.terms.binding, self._identity.certificate, b"", kem_key)
        return replace(unsigned, signature=self._identity.sign(unsigned.statement()))

    def share(self, roster: Roster) -> tuple[SealedShare, ...]:
        """Check the roster, delete the X25519 key, and seal the share and a part of the pair's root for everybody else.

        A repeated call seals the same content again.
        """
        if self.state.step is not Step.ADVERTISED:
            self._check_step(Step.SHARED, "the shares of this run were sent and used before")
        check_roster(self.terms, roster, self._identity.verify)
        digest = roster_digest(self.terms, roster)
        if self.state.step is Step.ADVERTISED:
            self._adopt(roster, digest)
        elif digest != self.state.roster:
            raise ChangedRoster("this is a second, different roster in one run")
        roots, sealed = self._roots(), []
        for peer in roster.adverts:
            if peer.name != self.name:
                plain = self.state.own_share, self._own_part(peer.name)
                sealed.append(set_up.seal_share(digest, roots[peer.name], self.name, peer, plain, self._identity.sign))
        return tuple(sealed)

    def complete(self, roster: Roster, shares: Iterable[SealedShare]) -> None:
        """Open everybody's share, which ends the set-up; the shares and the ML-KEM key are deleted."""
        self._check_step(Step.SHARED, "shares of the group secret come once, after the roster")
        # Its keys were checked when it was accepted; certificates may have been renewed since.
        if roster_digest(self.terms, roster) != self.state.roster:
            raise ChangedRoster("this is a second, different roster in one run")
        identities = {advert.name: set_up.identity_key(advert, self._identity.verify) for advert in roster.adverts}
        by_sender, roots = {share.sender: share for share in shares}, self._roots()
        opened, own_key = {self.name: self.state.own_share}, set_up.kem_key(self.state.private_key)
        for advert in roster.adverts:
            peer, binding = advert.name, self.terms.binding
            if peer != self.name:
                share = self._addressed(by_sender.get(peer), peer)
                set_up.check_share(self.state.roster, share, identities[peer])
                opened[peer], part = set_up.open_share(share, roots[peer], own_key, binding, advert.commitment)
                roots[peer] = masks.pair_root(roots[peer], {self.name: self._own_part(peer), peer: part})
        self._settle(set_up.combine(self.state.roster, opened), roots)

    def admit(self, opening: Opening) -> Numbers:
        """Raise a refusal unless the opening may be answered; return which numbers to answer it with."""
        self._check_step(Step.READY, "the set-up of the run is not complete at this site")
        check_opening(self.terms, self.state, opening, self._identity.verify)
        return Numbers.SAVED if opening.round == self.state.round else Numbers.NEW

    def answer(self, opening: Opening, vector: FloatArray) -> Masked | Misfit:
        """The update under the masks of the round, or that it does not fit; pins round, opening and update."""
        wanted, update = self.admit(opening), hashlib.sha256(np.ascontiguousarray(vector).data).digest()
        if wanted is Numbers.SAVED and update != self.state.update:
            raise ChangedUpdate("this is not the update that was saved for the round")
        if vector.shape != (opening.layout.size,):
            raise ChangedUpdate(f"the update has {vector.size} numbers, the layout {opening.layout.size}")
        state = self._pinned(opening, update)
        exponents = lifted(opening.layout, opening.exponents, state.lifts, self.terms.precision)
        fitting = fits(vector, opening.layout, exponents)
        if not fitting:
            state = self._counted(state, opening.round)
        context = context_of(self.terms, state.roster, opening, state.lifts)
        self.state = state
        return self._masked(opening, context, exponents, vector) if fitting else self._misfit(context)

    def verify_sum(self, opening: Opening, total: RingArray, tag: int) -> FloatArray:
        """The numbers of an opened sum of this run, after checking its tag; WrongSum if the members sent another."""
        self._check_step(Step.READY, "the set-up of the run is not complete at this site")
        lifts, members, precision = len(opening.misfits), len(self.terms.cohort), self.terms.precision
        integers = fixed_point.from_ring(total, precision)
        if not fixed_point.in_range(integers, precision) or self.tag_of_sum(opening, integers) != tag:
            raise WrongSum(f"the sum announced for round {opening.round} is not what the members of the run sent")
        if opening.misfits and fixed_point.rounds_to_nothing(integers, opening.layout):
            accused = opening.misfits[-1].name
            sentence = (
                f"the sum of round {opening.round} rounds to nothing after {lifts} misfits, the last of {accused}"
            )
            raise RoundedAway(sentence, "ask that member for its data's extreme values", accused=accused)
        exponents = lifted(opening.layout, opening.exponents, lifts, precision)
        return fixed_point.decode(integers, opening.layout, exponents, members, precision)

    def tag_of_sum(self, opening: Opening, integers: Integers) -> int:
        """The tag of this sum, if the members sent it."""
        context = context_of(self.terms, self.state.roster, opening, len(opening.misfits))
        return tags.tag_of(self.state.group_secret, context, integers, len(self.terms.cohort))

    def finish(self) -> None:
        """End the run: the record no longer holds any secret, and nothing is answered afterwards."""
        nobody = (NOTHING,) * len(self.terms.cohort)
        self._advance(step=Step.FINISHED, private_key=NOTHING, own_share=NOTHING, group_secret=NOTHING, roots=nobody)

    def _check_step(self, wanted: Step, otherwise: str) -> None:
        if self.state.step is Step.FINISHED:
            raise RunOver(f"run {self.terms.run} is over at this site")
        if self.state.step is not wanted:
            raise OutOfTurn(otherwise)

    def _adopt(self, roster: Roster, digest: bytes) -> None:
        relayed = roster.adverts[self.terms.cohort.index(self.name)]
        # The certificate may have been renewed since; signatures and certificates are checked with the roster.
        if (relayed.key, relayed.kem_key, relayed.commitment) != self._public():
            raise SwappedKey(f"the roster has another key for {self.name} than it advertised")
        private = set_up.agreement_key(self.state.private_key)
        agreements = tuple(
            NOTHING
            if advert.name == self.name
            else masks.pair_agreement(agree(private, advert.key, advert.name), digest, self.name, advert.name)
            for advert in roster.adverts
        )
        seed = set_up.kem_seed(self.state.private_key)
        self._advance(step=Step.SHARED, private_key=seed, roots=agreements, roster=digest)

    def _public(self) -> tuple[bytes, bytes, bytes]:
        """Both public keys of the run, and the commitment to the share."""
        agreement, kem = set_up.agreement_key(self.state.private_key), set_up.kem_seed(self.state.private_key)
        committed = set_up.commitment(self.terms.binding, self.name, self.state.own_share)
        return agreement.public_key().public_bytes_raw(), set_up.kem_key(kem).public_key().public_bytes_raw(), committed

    def _own_part(self, peer: str) -> bytes:
        return masks.pair_part(self.state.private_key, self.state.roster, peer)

    def _addressed(self, share: SealedShare | None, sender: str) -> SealedShare:
        if share is None or share.receiver != self.name:
            raise TamperedShare(f"the share of {sender} for {self.name} was not relayed")
        return share

    def _settle(self, secret: bytes, roots: dict[str, bytes]) -> None:
        kept = frozenset(neighbours_of(self.name, self.terms.cohort, secret))
        held = tuple(roots[name] if name in kept else NOTHING for name in self.terms.cohort)
        self._advance(step=Step.READY, private_key=NOTHING, own_share=NOTHING, group_secret=secret, roots=held)

    def _roots(self) -> dict[str, bytes]:
        named = zip(self.terms.cohort, self.state.roots, strict=True)
        return {name: root for name, root in named if root != NOTHING}

    def _pinned(self, opening: Opening, update: bytes) -> SiteState:
        """The state in which this opening is answered with this update."""
        state, lifts = self.state, len(opening.misfits)
        if opening.round == state.round:
            return state if lifts == state.lifts else replace(state, lifts=lifts, sequence=state.sequence + 1)
        steps = opening.round - max(state.round, 0)
        roots = tuple(root if root == NOTHING else masks.ratchet(root, steps) for root in state.roots)
        return replace(
            state,
            roots=roots,
            round=opening.round,
            opening=opening_digest(self.terms, state.roster, opening),
            update=update,
            lifts=lifts,
            lifts_before=state.lifts_before + state.lifts,
            sequence=state.sequence + 1,
        )

    def _counted(self, state: SiteState, round: int) -> SiteState:
        """The state with one more misfit of this site, unless it repeats one; UpdateTooLarge above MOST_LIFTS."""
        stated = state.own_misfits + (state != self.state)
        if state.lifts + state.lifts_before >= MOST_LIFTS or stated > MOST_LIFTS:
            raise UpdateTooLarge(
                f"the update of round {round} does not fit, and a run has room for {MOST_LIFTS} such cases",
                "look at the local data for extreme values, or begin a new run",
            )
        return replace(state, own_misfits=stated)

    def _masked(self, opening: Opening, context: bytes, exponents: tuple[int, ...], vector: FloatArray) -> Masked:
        precision = self.terms.precision
        integers = fixed_point.encode(vector, opening.layout, exponents, len(self.terms.cohort), precision)
        tag = tags.tag_of(self.state.group_secret, context, integers)
        values = fixed_point.to_ring(integers, precision)
        for peer, root in self._roots().items():
            masks.mask_values(values, masks.mask_key(root, context), self.name, peer)
            tag = tags.masked_tag(tag, root, context, self.name, peer)
        return Masked(self.name, context, values, tag)

    def _misfit(self, context: bytes) -> Misfit:
        unsigned = Misfit(self.name, context, self._identity.certificate, b"")
        return replace(unsigned, signature=self._identity.sign(unsigned.statement()))

    def _advance(self, **changes: object) -> None:
        self.state = replace(self.state, sequence=self.state.sequence + 1, **changes)  # type: ignore[arg-type]

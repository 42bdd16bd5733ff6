"""Unmasking at the aggregator: recovers the masks from the released shares and removes them from the sum.

Nothing here sees a single update: what is removed is the mask of the total.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dcfpca.secagg import ring_fixed_point
from dcfpca.secagg.dropout_recovery import keys, pairwise_keys, shamir
from dcfpca.secagg.dropout_recovery.aggregator import ClosedRoster
from dcfpca.secagg.dropout_recovery.context import Context
from dcfpca.secagg.dropout_recovery.messages import Agreement, Reveal, Survivors, agreement_digest
from dcfpca.secagg.errors import BelowThreshold, TamperedShare
from dcfpca.secagg.keys import agree
from dcfpca.secagg.masks import subtract_mask
from dcfpca.secagg.ring_fixed_point import FloatArray, RingArray

MOST_CHOICES = 500
"""So many ways of leaving wrong shares out are tried in one sum: enough for two liars among thirty."""

Shares = Mapping[tuple[str, str], bytes]
"""By holder and owner."""


@dataclass(frozen=True, slots=True)
class InconsistentShare:
    """A share that is inconsistent with the secret its owner committed to: holder or owner lied."""

    holder: str
    owner: str


@dataclass(frozen=True, slots=True)
class PairMask:
    """A survivor's pairwise mask with a dropout, which the dropout did not cancel."""

    survivor: str
    dropout: str
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Masks:
    """All masks to remove from the masked total."""

    self_masks: tuple[bytes, ...] = field(repr=False)
    pair_masks: tuple[PairMask, ...]
    inconsistent: tuple[InconsistentShare, ...] = ()


def recover(closed: ClosedRoster, agreement: Agreement, survivors: Survivors, reveals: Collection[Reveal]) -> Masks:
    """Recover the masks from the shares; raises when they are too few, or inconsistent with what was advertised.

    Where there are more than the threshold, wrong ones are left out, and told.
    """
    digest, alive = agreement_digest(closed.digest, agreement), frozenset(survivors.members)
    of_seed = {(reveal.name, share.owner): share.value for reveal in reveals for share in reveal.seed_shares}
    of_key = {(reveal.name, share.owner): share.value for reveal in reveals for share in reveal.key_shares}
    opener = _Opener(closed)
    self_masks = tuple(
        pairwise_keys.self_mask_key(_self_mask(opener, survivor, of_seed), digest, survivor)
        for survivor in survivors.members
    )
    dropouts = [name for name in agreement.members if name not in alive]
    pair_masks = tuple(
        mask
        for dropout in dropouts
        for mask in _pair_masks(closed, digest, alive, dropout, _mask_key(opener, dropout, of_key))
    )
    return Masks(self_masks, pair_masks, tuple(opener.inconsistent))


def remove_masks(total: RingArray, masks: Masks) -> None:
    """Turn the sum of masked updates into the sum of updates, in place."""
    for key in masks.self_masks:
        subtract_mask(total, key)
    for mask in masks.pair_masks:
        pairwise_keys.unapply_pair_mask(total, mask.key, mask.survivor, mask.dropout)


def open_sum(context: Context, agreement: Agreement, total: RingArray) -> FloatArray:
    """The sum of the survivors' updates from the unmasked total."""
    return ring_fixed_point.decode(total, agreement.exponent, len(agreement.members), context.precision)


class _Opener:
    """Opens the secrets of one sum; whoever's share was wrong once is left out from then on where that is possible."""

    def __init__(self, closed: ClosedRoster) -> None:
        self.closed = closed
        self.inconsistent: list[InconsistentShare] = []
        self._tries = MOST_CHOICES

    def secret(self, owner: str, shares: Shares, fits: Callable[[bytes], bool]) -> bytes | None:
        """The secret that fits, with as few shares left out as possible: each of those is wrong. None: no such."""
        by_place, threshold = _by_place(self.closed, owner, shares), self.closed.graph.threshold
        distrusted = self._distrusted(by_place)
        for left_out in self._choices(tuple(by_place), distrusted):
            kept = {place: share for place, (_, share) in by_place.items() if place not in left_out}
            try:
                secret = shamir.combine(kept, threshold)
            except TamperedShare:
                continue
            if fits(secret):
                wrong = () if left_out == distrusted else left_out
                self.inconsistent += [InconsistentShare(by_place[place][0], owner) for place in wrong]
                return secret
        return None

    def _distrusted(self, by_place: Mapping[int, tuple[str, bytes]]) -> tuple[int, ...]:
        liars = {share.holder for share in self.inconsistent}
        return tuple(place for place, (holder, _) in by_place.items() if holder in liars)

    def _choices(self, places: tuple[int, ...], distrusted: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """The sets of places to leave out, the likeliest first, until the tries are used up."""
        spare = len(places) - self.closed.graph.threshold
        fewest_first = chain.from_iterable(combinations(places, count) for count in range(spare + 1))
        for left_out in chain([distrusted] if len(distrusted) <= spare else [], fewest_first):
            if self._tries == 0:
                return
            # What opens at once, as it should, is not counted.
            self._tries -= 1 if left_out else 0
            yield left_out


def _self_mask(opener: _Opener, owner: str, shares: Shares) -> bytes:
    context, committed = opener.closed.context, opener.closed.adverts[owner].commitment
    secret = opener.secret(owner, shares, lambda found: keys.commitment(context, owner, found) == committed)
    if secret is None:
        raise TamperedShare(f"the shares of the self-mask seed of {owner} do not give the seed it committed to")
    return secret


def _mask_key(opener: _Opener, owner: str, shares: Shares) -> X25519PrivateKey:
    advertised = opener.closed.adverts[owner].mask_key

    def fits(found: bytes) -> bool:
        return X25519PrivateKey.from_private_bytes(found).public_key().public_bytes_raw() == advertised

    secret = opener.secret(owner, shares, fits)
    if secret is None:
        raise TamperedShare(f"the shares of the mask key of {owner} do not give the key it advertised")
    return X25519PrivateKey.from_private_bytes(secret)


def _by_place(closed: ClosedRoster, owner: str, shares: Shares) -> dict[int, tuple[str, bytes]]:
    """Holders and shares by place; raises when they are too few."""
    found = {
        closed.graph.place(owner, holder): (holder, shares[holder, owner])
        for holder in closed.graph.neighbourhood(owner)
        if (holder, owner) in shares
    }
    if len(found) < closed.graph.threshold:
        raise BelowThreshold(
            f"{len(found)} shares of {owner}'s secret were released, the threshold is {closed.graph.threshold}",
            "the round must be reopened",
        )
    return found


def _pair_masks(
    closed: ClosedRoster, digest: bytes, alive: frozenset[str], dropout: str, key: X25519PrivateKey
) -> list[PairMask]:
    return [
        PairMask(
            survivor=peer,
            dropout=dropout,
            key=pairwise_keys.pair_mask_key(agree(key, closed.adverts[peer].mask_key, peer), digest, dropout, peer),
        )
        for peer in closed.graph.neighbourhood(dropout)
        if peer in alive
    ]

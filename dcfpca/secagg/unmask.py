"""The end of an attempt at the aggregator: from the released shares to the masks, from the masks to the sum.

Nothing here sees a single update: what is removed is the mask of the total.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from dcfpca.secagg import keys, links, ring, shamir
from dcfpca.secagg.aggregator import Book
from dcfpca.secagg.context import Context
from dcfpca.secagg.errors import BelowThreshold, TamperedShare
from dcfpca.secagg.masks import subtract_mask
from dcfpca.secagg.messages import Agreement, Reveal, Survivors, agreement_digest
from dcfpca.secagg.ring import FloatArray, RingArray


@dataclass(frozen=True, slots=True)
class PairMask:
    """The mask that a survivor applied against a dropout, which did not come to cancel it."""

    survivor: str
    dropout: str
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Masks:
    """All that stands between the masked total and the sum."""

    self_masks: tuple[bytes, ...] = field(repr=False)
    pair_masks: tuple[PairMask, ...]


def recover(book: Book, agreement: Agreement, survivors: Survivors, reveals: Collection[Reveal]) -> Masks:
    """Put the shares together; raises when they are too few, or do not give what was advertised."""
    digest, alive = agreement_digest(book.digest, agreement), frozenset(survivors.members)
    of_seed = {(reveal.name, share.owner): share.value for reveal in reveals for share in reveal.seed_shares}
    of_key = {(reveal.name, share.owner): share.value for reveal in reveals for share in reveal.key_shares}
    self_masks = tuple(
        links.self_mask_key(_self_mask(book, survivor, of_seed), digest, survivor) for survivor in survivors.members
    )
    dropouts = [name for name in agreement.members if name not in alive]
    pair_masks = tuple(
        mask
        for dropout in dropouts
        for mask in _pair_masks(book, digest, alive, dropout, _mask_key(book, dropout, of_key))
    )
    return Masks(self_masks, pair_masks)


def remove_masks(total: RingArray, masks: Masks) -> None:
    """Turn the sum of masked updates into the sum of updates, in place."""
    for key in masks.self_masks:
        subtract_mask(total, key)
    for mask in masks.pair_masks:
        links.unapply_pair_mask(total, mask.key, mask.survivor, mask.dropout)


def open_sum(context: Context, agreement: Agreement, total: RingArray) -> FloatArray:
    """The sum of the survivors' updates from the unmasked total."""
    return ring.decode(total, agreement.exponent, len(agreement.members), context.precision)


def _self_mask(book: Book, owner: str, shares: dict[tuple[str, str], bytes]) -> bytes:
    secret = _combine(book, owner, shares)
    if keys.commitment(book.context, owner, secret) != book.adverts[owner].commitment:
        raise TamperedShare(f"the shares of the self-mask seed of {owner} do not give the seed it committed to")
    return secret


def _mask_key(book: Book, owner: str, shares: dict[tuple[str, str], bytes]) -> X25519PrivateKey:
    key = X25519PrivateKey.from_private_bytes(_combine(book, owner, shares))
    if key.public_key().public_bytes_raw() != book.adverts[owner].mask_key:
        raise TamperedShare(f"the shares of the mask key of {owner} do not give the key it advertised")
    return key


def _combine(book: Book, owner: str, shares: dict[tuple[str, str], bytes]) -> bytes:
    by_place = {
        book.graph.place(owner, holder): shares[holder, owner]
        for holder in book.graph.neighbourhood(owner)
        if (holder, owner) in shares
    }
    if len(by_place) < book.graph.threshold:
        raise BelowThreshold(
            f"{len(by_place)} shares of {owner}'s secret were released, the threshold is {book.graph.threshold}",
            "the round must be reopened",
        )
    return shamir.combine(by_place, book.graph.threshold)


def _pair_masks(
    book: Book, digest: bytes, alive: frozenset[str], dropout: str, key: X25519PrivateKey
) -> list[PairMask]:
    return [
        PairMask(
            survivor=peer,
            dropout=dropout,
            key=links.pair_mask_key(keys.agree(key, book.adverts[peer].mask_key, peer), digest, dropout, peer),
        )
        for peer in book.graph.neighbourhood(dropout)
        if peer in alive
    ]

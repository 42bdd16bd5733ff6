"""The keys between two participants: one per direction for sealing shares, one per pair for masking."""

from __future__ import annotations

from dcfpca.secagg.dropout_recovery import keys
from dcfpca.secagg.masks import add_mask, subtract_mask
from dcfpca.secagg.ring_fixed_point import RingArray


def sealing_key(secret: bytes, roster: bytes, sender: str, receiver: str) -> bytes:
    """The key that seals the single message from this sender to this receiver under this roster."""
    return keys.derive(secret, "seal-share", roster, sender, receiver)


def self_mask_key(self_mask: bytes, agreement: bytes, name: str) -> bytes:
    """The key of a participant's self-mask; bound to the agreement, so that another agreement gives another mask."""
    return keys.derive(self_mask, "self-mask", agreement, name)


def pair_mask_key(secret: bytes, agreement: bytes, one: str, other: str) -> bytes:
    """The key of the mask between two participants, symmetric in them."""
    return keys.derive(secret, "pair-mask", agreement, min(one, other), max(one, other))


def apply_pair_mask(vector: RingArray, key: bytes, name: str, peer: str) -> None:
    """Mask `name`'s vector against `peer`: of a pair, the first in order adds and the second subtracts."""
    if name < peer:
        add_mask(vector, key)
    else:
        subtract_mask(vector, key)


def unapply_pair_mask(vector: RingArray, key: bytes, name: str, peer: str) -> None:
    """Undo `apply_pair_mask`."""
    apply_pair_mask(vector, key, peer, name)

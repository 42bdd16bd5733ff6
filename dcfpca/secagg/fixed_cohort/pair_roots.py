"""Pair roots: the secret that two members of a run share, and the single-purpose keys derived from it.

The root of a round is the root of the round before, ratcheted: whoever takes a later one cannot go back.
"""

from __future__ import annotations

from dcfpca.secagg.fixed_cohort.domain_separation import derive
from dcfpca.secagg.fixed_cohort.homomorphic_mac import P, to_field
from dcfpca.secagg.masks import add_mask, subtract_mask
from dcfpca.secagg.ring_fixed_point import RingArray


def pair_root(shared: bytes, roster: bytes, one: str, other: str) -> bytes:
    """The root of round 0 from the X25519 secret of two members, symmetric in both."""
    return derive(shared, "pair-root", roster, min(one, other), max(one, other))


def ratchet(root: bytes, rounds: int) -> bytes:
    """The root after `rounds` more rounds."""
    for _ in range(rounds):
        root = derive(root, "ratchet")
    return root


def sealing_key(root: bytes, sender: str, receiver: str) -> bytes:
    """The key that seals the single share from this sender to this receiver."""
    return derive(root, "seal-share", sender, receiver)


def mask_key(root: bytes, context: bytes) -> bytes:
    """The key of a pair's mask in one context."""
    return derive(root, "pair-mask", context)


def mask_values(values: RingArray, key: bytes, name: str, peer: str) -> None:
    """Mask `name`'s numbers against `peer` in place: of a pair, the first in order adds and the second subtracts."""
    if name < peer:
        add_mask(values, key)
    else:
        subtract_mask(values, key)


def masked_tag(tag: int, root: bytes, context: bytes, name: str, peer: str) -> int:
    """Mask `name`'s tag against `peer`, modulo P."""
    mask = to_field(derive(root, "tag-mask", context))
    return (tag + mask if name < peer else tag - mask) % P

"""A one-time homomorphic MAC of the sum under the group secret: tags add up as the updates do.

For a context, h ∈ F^m and b ∈ F are pseudo-random from the group secret, F the field of P = 2⁶¹ − 1. A member's tag is
b + ⟨h, x_i⟩, the tag of a sum X over n members is n·b + ⟨h, X⟩. Whoever lacks the secret and knows X with its tag finds
the tag of another sum with probability at most 1/P: sums lie within ±2⁶⁰, so two of them differ by less than P and
are different modulo P too, and the pad b hides ⟨h, X⟩, without which a multiple of the sum would pass.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.secagg.encoding import derive
from dcfpca.secagg.fixed_point import Integers
from dcfpca.secagg.masks import stream_blocks

P = (1 << 61) - 1
TAG_BYTES = 8
# Products of two limbs stay below 2^32 in magnitude, and the 2^12 of a block below 2^44: exact in floating point, in
# any order; the integer sums of 2^18 blocks stay below 2^62. The limbs of a block stay in the cache, and their memory
# is used again for the next one.
_LIMB_BITS, _LIMBS, _BLOCK = 16, 4, 1 << 12


def tag_of(group_secret: bytes, context: bytes, integers: Integers, members: int = 1) -> int:
    """The tag of one member's integers in a context, or of the sum over `members` members."""
    pad = to_field(derive(group_secret, "tag-pad", context))
    return (members * pad + _weighted_sum(derive(group_secret, "tag-weights", context), integers)) % P


def to_field(raw: bytes) -> int:
    """A field element, uniform up to 2^−67, from the first 16 bytes of a uniform key."""
    return int.from_bytes(raw[:16], "little") % P


def masked_tag(tag: int, root: bytes, context: bytes, name: str, peer: str) -> int:
    """Mask `name`'s tag against `peer`, modulo P."""
    mask = to_field(derive(root, "tag-mask", context))
    return (tag + mask if name < peer else tag - mask) % P


def _weighted_sum(key: bytes, integers: Integers) -> int:
    """⟨h, x⟩ modulo P; h_k is the k-th 8 bytes of the key's stream, little-endian, without their top three bits."""
    limbs = np.empty((2, min(_BLOCK, len(integers)), _LIMBS))
    products = np.zeros((_LIMBS, _LIMBS), np.int64)
    for start, stream in stream_blocks(key, len(integers), np.dtype("<u8")):
        np.bitwise_and(stream, np.uint64(P), out=stream)
        for first in range(0, len(stream), _BLOCK):
            weights = stream[first : first + _BLOCK]
            products += _limb_products(weights, integers[start + first : start + first + len(weights)], limbs)
    shifted = (int(product) << _LIMB_BITS * sum(place) for place, product in np.ndenumerate(products))
    return sum(shifted) % P


def _limb_products(weights: NDArray[np.uint64], integers: Integers, limbs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Of one block: the sum of the products of limb i of h and limb j of x. There is room for the limbs in `limbs`."""
    unsigned, signed = limbs[:, : len(weights)]
    unsigned[:], signed[:] = weights.view("<u2").reshape(-1, _LIMBS), integers.view("<u2").reshape(-1, _LIMBS)
    signed[:, -1] = integers.view("<i2")[_LIMBS - 1 :: _LIMBS]
    products: NDArray[np.int64] = (unsigned.T @ signed).astype(np.int64)
    return products

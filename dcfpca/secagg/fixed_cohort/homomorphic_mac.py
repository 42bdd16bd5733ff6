"""A one-time homomorphic MAC of the sum under the group secret: tags add up as the updates do.

For a context, h ∈ F^m and b ∈ F are pseudo-random from the group secret, F the field of P = 2⁶¹ − 1. A member's tag is
b + ⟨h, x_i⟩, the tag of a sum X over n members is n·b + ⟨h, X⟩. Whoever lacks the secret and knows X with its tag finds
the tag of another sum with probability at most 1/P: sums lie within ±2⁶⁰, so two of them differ by less than P and
are different modulo P too, and the pad b hides ⟨h, X⟩, without which a multiple of the sum would pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dcfpca.secagg.fixed_cohort.domain_separation import derive
from dcfpca.secagg.fixed_cohort.fixed_point import Integers
from dcfpca.secagg.masks import expand

P = (1 << 61) - 1
TAG_BYTES = 8
# Products of two limbs stay below 2^41 in magnitude, and 2^12 of them below 2^53: exact in floating point, in any
# order. Blocks of that size also stay in the cache.
_LIMB_BITS = 20
_BLOCK = 1 << 12
_LOW = np.int64((1 << _LIMB_BITS) - 1)


@dataclass(frozen=True, slots=True)
class TagKey:
    """The keys of the tags of one context."""

    weights: bytes = field(repr=False)
    pad: int = field(repr=False)


def tag_key(group_secret: bytes, context: bytes) -> TagKey:
    """The MAC key of a context, derived from the group secret."""
    pad = to_field(derive(group_secret, "tag-pad", context))
    return TagKey(derive(group_secret, "tag-weights", context), pad)


def tag_of(key: TagKey, integers: Integers, members: int = 1) -> int:
    """The tag of one member's integers, or of the sum over `members` members."""
    return (members * key.pad + _weighted_sum(key.weights, integers)) % P


def to_field(raw: bytes) -> int:
    """A field element, uniform up to 2^−67, from the first 16 bytes of a uniform key."""
    return int.from_bytes(raw[:16], "little") % P


def _weighted_sum(key: bytes, integers: Integers) -> int:
    """⟨h, x⟩ modulo P; h_k is the k-th 8 bytes of the key's stream, little-endian, without their top three bits."""
    stream = np.frombuffer(expand(key, 8 * len(integers)), dtype="<u8")
    total = 0
    for start in range(0, len(integers), _BLOCK):
        weights = (stream[start : start + _BLOCK] & np.uint64(P)).view(np.int64)
        total += _exact_dot(weights, integers[start : start + _BLOCK])
    return total % P


def _exact_dot(weights: NDArray[np.int64], integers: Integers) -> int:
    """⟨h, x⟩ of one block over the integers, by products of limbs."""
    products = (_limbs(weights) @ _limbs(integers).T).astype(np.int64).tolist()
    return sum(product << (_LIMB_BITS * (i + j)) for i, row in enumerate(products) for j, product in enumerate(row))


def _limbs(values: NDArray[np.int64]) -> NDArray[np.float64]:
    """Three limbs of each number, lowest first; the highest has the sign."""
    limbs = np.empty((3, len(values)))
    limbs[0], limbs[1], limbs[2] = values & _LOW, (values >> _LIMB_BITS) & _LOW, values >> 2 * _LIMB_BITS
    return limbs

"""Updates as integers whose sum stays below 2⁶⁰ (2³¹ for 32 bits): it never wraps, and tags are sound below 2⁶⁰.

With n < 2^c members and |x| < 2^e, a number is stored as round(x · 2^s), s = ROOM − c − e.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.secagg.fixed_cohort.block_layout import BlockLayout
from dcfpca.secagg.ring_fixed_point import FloatArray, RingArray, dtype_of

Integers = NDArray[np.int64]

ROOM = {64: 60, 32: 31}


def encode(
    vector: FloatArray, layout: BlockLayout, exponents: tuple[int, ...], members: int, precision: int
) -> Integers:
    """Fixed point of a vector that the exponents bound."""
    scaled = vector.copy()
    for where, exponent in zip(layout.slices(), exponents, strict=True):
        scaled[where] *= _unit(exponent, members, precision)
    return np.rint(scaled, out=scaled).astype(np.int64)


def decode(
    total: Integers, layout: BlockLayout, exponents: tuple[int, ...], members: int, precision: int
) -> FloatArray:
    """The numbers whose fixed point summed to this total."""
    numbers = total.astype(np.float64)
    for where, exponent in zip(layout.slices(), exponents, strict=True):
        numbers[where] /= _unit(exponent, members, precision)
    return numbers


def to_ring(integers: Integers, precision: int) -> RingArray:
    """The integers modulo 2⁶⁴ (or 2³²), in an array of its own."""
    return integers.view("<u8").astype(dtype_of(precision))


def from_ring(total: RingArray, precision: int) -> Integers:
    """The signed integers of a total that did not wrap."""
    return total.view("<i8" if precision == 64 else "<i4").astype(np.int64)


def in_range(total: Integers, precision: int) -> bool:
    """True if the total lies in the range that sums of honest members have."""
    limit = 1 << ROOM[precision]
    return bool(np.all((total < limit) & (total > -limit)))


def _unit(exponent: int, members: int, precision: int) -> float:
    return 2.0 ** (ROOM[precision] - members.bit_length() - exponent)

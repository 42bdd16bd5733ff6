"""Updates as integers in blocks, each with an exponent of its own, whose sums never wrap around.

With n < 2^c members and |x| < 2^e, a number is stored as round(x · 2^s), s = ROOM − c − e: sums stay below 2⁶⁰ (2³¹ for
32 bits), where tags are sound. Each block of an update has an exponent of its own, so that a large count costs the
tensor no precision.

The exponents follow a public rule, so that no site states a bound of its own update. The first ones come with the
layout. Later ones follow from the last sum, with headroom for updates that cancelled in it. A site whose update does
not fit says so, one signed bit; each such misfit lifts the exponents of all blocks but bounded ones, and a run has room
for MOST_LIFTS of them. Headroom and all lifts together leave enough bits of a sum that no member can silence
the others by misfits; a block that was lifted and sums to nothing at all is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.secagg.encoding import canonical
from dcfpca.secagg.errors import ChangedExponent, UnusableUpdate

if TYPE_CHECKING:
    from dcfpca.rpca.method import Layout

FloatArray = NDArray[np.float64]
RingArray = NDArray[np.unsignedinteger[Any]]
Integers = NDArray[np.int64]

RING: dict[int, np.dtype[np.unsignedinteger[Any]]] = {64: np.dtype("<u8"), 32: np.dtype("<u4")}
"""The ring as it lies on the wire, by precision: little-endian unsigned integers of this many bits."""
MIN_EXPONENT = -960
MAX_EXPONENT = 960
ROOM = {64: 60, 32: 31}
MOST_LIFTS = 3
HEADROOM = {64: 10, 32: 3}
LIFT = {64: 8, 32: 3}
STEEPEST_FALL = 8
"""The largest fall of an exponent per round, so that one round of small updates does not clip the next."""
BOUNDED = "bounded"
"""Name of a block whose numbers keep their bound by construction: no sum changes its exponent."""

COUNT_EXPONENT = {64: 40, 32: 20}
"""Counts of columns and entries are whole numbers; any exponent with steps of at most one represents them exactly."""
EXPONENTS = {
    "COUNT": COUNT_EXPONENT,
    "SCALE": {64: 12, 32: 8},  # larger ones take a lift
    "TENSOR": {64: 12, 32: 4},
    "SHARE": {64: 8, 32: 4},
}
"""By the name of the numbers' `Kind`: the secure sum does not depend on the methods that use it."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of `size` numbers of one kind, bounded by |x| < 2^exponent as long as no earlier sum bounds them."""

    name: str
    size: int
    exponent: int


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """An update as a sequence of blocks, with what follows from them worked out once: a run has few layouts and asks
    for them several times a round. `statement` is the layout as one field of what is hashed."""

    blocks: tuple[Block, ...]
    size: int = field(init=False, repr=False, compare=False)
    slices: tuple[slice, ...] = field(init=False, repr=False, compare=False)
    first_exponents: tuple[int, ...] = field(init=False, repr=False, compare=False)
    statement: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ends = tuple(accumulate(block.size for block in self.blocks))
        each = (canonical("block", block.name, block.size, block.exponent) for block in self.blocks)
        worked_out = {
            "size": ends[-1] if ends else 0,
            "slices": tuple(slice(end - block.size, end) for block, end in zip(self.blocks, ends, strict=True)),
            "first_exponents": tuple(block.exponent for block in self.blocks),
            "statement": canonical("layout", *each),
        }
        for name, value in worked_out.items():
            object.__setattr__(self, name, value)


def block_layout(layout: Layout, precision: int = 64) -> BlockLayout:
    """The blocks of an update of this layout, for sums of 64 or 32 bits."""
    if layout.exponent is not None:
        return BlockLayout((Block(BOUNDED, layout.size, layout.exponent),))
    blocks = (Block(kind.name.lower(), size, EXPONENTS[kind.name][precision]) for size, kind in layout.blocks)
    return BlockLayout(tuple(blocks))


def next_exponents(layout: BlockLayout, before: tuple[int, ...], total: FloatArray, precision: int) -> tuple[int, ...]:
    """The exponents after a round of this layout, from the exponents it ended with and its sum."""
    after = []
    for block, exponent, where in zip(layout.blocks, before, layout.slices, strict=True):
        if block.name != BOUNDED:
            wanted = bounding_exponent(total[where]) + HEADROOM[precision]
            exponent = min(MAX_EXPONENT, max(wanted, exponent - STEEPEST_FALL, MIN_EXPONENT))  # noqa: PLW2901
        after.append(exponent)
    return tuple(after)


def lifted(layout: BlockLayout, exponents: tuple[int, ...], lifts: int, precision: int) -> tuple[int, ...]:
    """The exponents after `lifts` misfits; those of bounded blocks stay, as the steps of their numbers are agreed."""
    return tuple(
        exponent if block.name == BOUNDED else min(MAX_EXPONENT, exponent + lifts * LIFT[precision])
        for block, exponent in zip(layout.blocks, exponents, strict=True)
    )


def fits(vector: FloatArray, layout: BlockLayout, exponents: tuple[int, ...]) -> bool:
    """True if every number is below its bound; numbers that are not finite raise UnusableUpdate."""
    bounds = [bounding_exponent(vector[where]) for where in layout.slices]
    return all(bound <= exponent for bound, exponent in zip(bounds, exponents, strict=True))


def check_exponents(layout: BlockLayout, exponents: tuple[int, ...]) -> None:
    """Raise unless there is one exponent for each block, within the limits of fixed point, or as the block fixes it."""
    if len(exponents) != len(layout.blocks):
        raise ChangedExponent(f"{len(exponents)} exponents were announced for {len(layout.blocks)} blocks")
    for block, exponent in zip(layout.blocks, exponents, strict=True):
        if block.name == BOUNDED and exponent != block.exponent:
            raise ChangedExponent(f"the exponent {exponent} was announced where the spec fixes {block.exponent}")
        if not MIN_EXPONENT <= exponent <= MAX_EXPONENT:
            raise ChangedExponent(f"the exponent {exponent} is outside {MIN_EXPONENT} … {MAX_EXPONENT}")


def bounding_exponent(vector: FloatArray) -> int:
    """The smallest e within the limits with |x| < 2^e for every number of the vector."""
    # The largest magnitude is NaN or infinite exactly if some number is, so one pass is enough.
    largest = max(float(np.max(vector, initial=0.0)), -float(np.min(vector, initial=0.0)))
    if not np.isfinite(largest) or np.frexp(largest)[1] > MAX_EXPONENT:
        raise UnusableUpdate(
            "the update has numbers that are not finite or above 2^960", "look at the local data for extreme values"
        )
    return MIN_EXPONENT if largest == 0.0 else max(MIN_EXPONENT, int(np.frexp(largest)[1]))


def encode(
    vector: FloatArray, layout: BlockLayout, exponents: tuple[int, ...], members: int, precision: int
) -> Integers:
    """Fixed point of a vector that the exponents bound."""
    scaled = vector.copy()
    for where, exponent in zip(layout.slices, exponents, strict=True):
        scaled[where] *= unit_of(exponent, members, precision)
    return np.rint(scaled, out=scaled).astype(np.int64)


def decode(
    total: Integers, layout: BlockLayout, exponents: tuple[int, ...], members: int, precision: int
) -> FloatArray:
    """The numbers whose fixed point summed to this total."""
    numbers = total.astype(np.float64)
    for where, exponent in zip(layout.slices, exponents, strict=True):
        numbers[where] /= unit_of(exponent, members, precision)
    return numbers


def to_ring(integers: Integers, precision: int) -> RingArray:
    """The integers modulo 2⁶⁴ (or 2³²), in a new array."""
    return integers.view("<u8").astype(RING[precision])


def from_ring(total: RingArray, precision: int) -> Integers:
    """The signed integers of a total that did not wrap."""
    return total.view("<i8" if precision == 64 else "<i4").astype(np.int64)


def rounds_to_nothing(total: Integers, layout: BlockLayout) -> bool:
    """True if a whole block of a sum is zero."""
    return any(not total[where].any() for where in layout.slices)


def in_range(total: Integers, precision: int) -> bool:
    """True if the total lies in the range that sums of honest members have."""
    limit = 1 << ROOM[precision]
    return bool(np.all((total < limit) & (total > -limit)))


def rounding_of(layout: Layout, exponents: tuple[int, ...], members: int, precision: int) -> tuple[float, float]:
    """Bounds on the rounding error of a sum of this layout: of its tensor, and of its scalars."""
    # Half a step for every member, in each block.
    blocks = [0.5 * members / unit_of(exponent, members, precision) for exponent in exponents]
    both = layout.scalars and layout.scalars < layout.size
    return (blocks[0], blocks[1]) if both else (max(blocks), max(blocks))


def unit_of(exponent: int, members: int, precision: int) -> float:
    """How many steps of fixed point make up one."""
    return 2.0 ** (ROOM[precision] - members.bit_length() - exponent)

"""The public rule that bounds the numbers of a round, so that no site states a bound of its own update.

The first exponents come with the layout. Later ones follow from the last sum, with headroom for updates that cancelled
in it. A site whose update does not fit says so, one signed bit; each such misfit lifts the exponents of all blocks but
bounded ones, and a run has room for MOST_LIFTS of them.
"""

from __future__ import annotations

from dcfpca.secagg.errors import ChangedExponent
from dcfpca.secagg.fixed_cohort.block_layout import BOUNDED, BlockLayout
from dcfpca.secagg.ring_fixed_point import MAX_EXPONENT, MIN_EXPONENT, FloatArray, bounding_exponent

MOST_LIFTS = 3
HEADROOM = {64: 10, 32: 3}
LIFT = {64: 16, 32: 6}
STEEPEST_FALL = 8
"""The largest fall of an exponent per round, so that one round of small updates does not clip the next."""


def first_exponents(layout: BlockLayout) -> tuple[int, ...]:
    """The exponents of a round whose layout had no sum before."""
    return tuple(block.exponent for block in layout.blocks)


def next_exponents(layout: BlockLayout, before: tuple[int, ...], total: FloatArray, precision: int) -> tuple[int, ...]:
    """The exponents after a round of this layout, from the exponents it ended with and its sum."""
    return tuple(
        exponent if block.name == BOUNDED else _next(exponent, total[where], HEADROOM[precision])
        for block, exponent, where in zip(layout.blocks, before, layout.slices(), strict=True)
    )


def lifted(layout: BlockLayout, exponents: tuple[int, ...], lifts: int, precision: int) -> tuple[int, ...]:
    """The exponents after `lifts` misfits; those of bounded blocks stay, as the steps of their numbers are agreed."""
    return tuple(
        exponent if block.name == BOUNDED else min(MAX_EXPONENT, exponent + lifts * LIFT[precision])
        for block, exponent in zip(layout.blocks, exponents, strict=True)
    )


def fits(vector: FloatArray, layout: BlockLayout, exponents: tuple[int, ...]) -> bool:
    """True if every number is below its bound; numbers that are not finite raise UnusableUpdate."""
    bounds = [bounding_exponent(vector[where]) for where in layout.slices()]
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


def _next(before: int, total: FloatArray, headroom: int) -> int:
    return min(MAX_EXPONENT, max(bounding_exponent(total) + headroom, before - STEEPEST_FALL, MIN_EXPONENT))

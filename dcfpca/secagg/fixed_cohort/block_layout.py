"""The blocks of an update. Each has an exponent of its own, so that a large count costs the tensor no precision."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from dcfpca.secagg.fixed_cohort.domain_separation import canonical

BOUNDED = "bounded"
"""Name of a block whose numbers keep their bound by construction: no sum changes its exponent."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of `size` numbers of one kind, bounded by |x| < 2^exponent as long as no earlier sum bounds them."""

    name: str
    size: int
    exponent: int


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """An update as a sequence of blocks."""

    blocks: tuple[Block, ...]

    @property
    def size(self) -> int:
        """The number of values in the update."""
        return sum(block.size for block in self.blocks)

    def slices(self) -> Iterator[slice]:
        """The slice of each block."""
        ends = accumulate(block.size for block in self.blocks)
        return (slice(end - block.size, end) for block, end in zip(self.blocks, ends, strict=True))

    def field(self) -> bytes:
        """The layout as one field of a statement."""
        return _field(self.blocks)


@lru_cache(maxsize=32)
def _field(blocks: tuple[Block, ...]) -> bytes:
    """Kept, because a run has few layouts and asks for one several times a round."""
    return canonical("layout", *(canonical("block", block.name, block.size, block.exponent) for block in blocks))

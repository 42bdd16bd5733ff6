"""The terms of a run: everything that follows from its spec, worked out once when it is proposed or loaded.

Either side makes one such object per run and hands it on. No method, stage or layout is made in a round: that would
repeat the cost, and a reader could not tell which objects are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from weakref import WeakValueDictionary

import numpy as np

from dcfpca.method_memory import snapshot_format
from dcfpca.methods import method_of
from dcfpca.rpca.method import Layout
from dcfpca.rpca.stage_list import Method
from dcfpca.secagg.fixed_point import BlockLayout, block_layout, unit_of
from dcfpca.spec import RunSpec, spec_digest


@dataclass(frozen=True)
class Terms:
    """A spec, its method, and the blocks of the updates of every stage in a secure sum."""

    spec: RunSpec
    method: Method = field(repr=False, compare=False)
    blocks: Mapping[str, BlockLayout] = field(repr=False, compare=False)
    canonical: bytes = field(repr=False, compare=False)

    @staticmethod
    def of(spec: RunSpec) -> Terms:
        """The terms of a run of this spec; runs of one spec share them for as long as somebody holds them."""
        canonical = spec.canonical()
        terms = _SHARED.get(canonical)
        if terms is None:
            method = method_of(spec)
            blocks = {stage.name: block_layout(stage.up, spec.precision) for stage in method.stages}
            terms = _SHARED[canonical] = Terms(spec, method, MappingProxyType(blocks), canonical)
        return terms

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the spec's canonical bytes."""
        return spec_digest(self.canonical)

    @cached_property
    def snapshot_format(self) -> str:
        """The format of what a site keeps between the rounds."""
        return snapshot_format(self.spec)

    @cached_property
    def number_bytes(self) -> int:
        """The bytes of one number of an update."""
        return np.dtype(self.spec.update_format).itemsize

    def down(self, stage: str) -> Layout:
        """What the aggregator sends at the start of a round of this stage."""
        return self.method.stage(stage).down

    def up(self, stage: str) -> Layout:
        """What every site sends in a round of this stage."""
        return self.method.stage(stage).up

    def rounding(self, stage: str, exponents: tuple[int, ...], members: int) -> tuple[float, float]:
        """Bounds on the rounding error of a sum under these exponents: of its tensor, and of its scalars."""
        # Half a step for every member, in each block.
        blocks = [0.5 * members / unit_of(exponent, members, self.spec.precision) for exponent in exponents]
        layout = self.up(stage)
        both = layout.scalars and layout.scalars < layout.size
        return (blocks[0], blocks[1]) if both else (max(blocks), max(blocks))

    def update_bytes(self, stage: str) -> int:
        """The size of an update, and of a sum of updates."""
        return self.up(stage).size * self.number_bytes


# An aggregator has many runs of one spec that are over, and their terms would be most of what it keeps of each.
_SHARED: WeakValueDictionary[bytes, Terms] = WeakValueDictionary()

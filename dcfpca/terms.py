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
from dcfpca.rpca.stage_list import Method
from dcfpca.secagg.fixed_point import BlockLayout, block_layout
from dcfpca.spec import RunSpec, spec_digest


@dataclass(frozen=True)
class Terms:
    """A spec and its method; by stage the blocks of an update in a secure sum, and the bytes of an update or a sum."""

    spec: RunSpec
    method: Method = field(repr=False, compare=False)
    blocks: Mapping[str, BlockLayout] = field(repr=False, compare=False)
    update_bytes: Mapping[str, int] = field(repr=False, compare=False)
    canonical: bytes = field(repr=False, compare=False)

    @staticmethod
    def of(spec: RunSpec) -> Terms:
        """The terms of a run of this spec; runs of one spec share them for as long as somebody holds them."""
        canonical = spec.canonical()
        terms = _SHARED.get(canonical)
        if terms is None:
            method = method_of(spec)
            blocks = {stage.name: block_layout(stage.up, spec.precision) for stage in method.stages}
            number = np.dtype(spec.update_format).itemsize
            sizes = {stage.name: stage.up.size * number for stage in method.stages}
            terms = _SHARED[canonical] = Terms(
                spec, method, MappingProxyType(blocks), MappingProxyType(sizes), canonical
            )
        return terms

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the spec's canonical bytes."""
        return spec_digest(self.canonical)

    @cached_property
    def snapshot_format(self) -> str:
        """The format of what a site keeps between the rounds."""
        return snapshot_format(self.spec)


# An aggregator has many runs of one spec that are over, and their terms would be most of what it keeps of each.
_SHARED: WeakValueDictionary[bytes, Terms] = WeakValueDictionary()

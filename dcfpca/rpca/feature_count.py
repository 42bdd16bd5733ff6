"""The count of sites that have each feature, before anything else is summed: for runs in which sites may lack some.

A sum about a feature that one site alone has is that site's own number. So the first round of such a run counts, by a
sum of ones, how many sites have any entry of each feature; the run ends there if a feature has too few. Sites that
verify sums find the same: they answer no later round of a run that should have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import (
    Columns,
    Consensus,
    FloatArray,
    Layout,
    Partition,
    PartTask,
    ResultBlock,
    Site,
    Stage,
    TensorMessage,
    Total,
    Verdict,
)
from dcfpca.rpca.partitioned_step import sum_of_answers
from dcfpca.rpca.preceded_method import PrecededMethod
from dcfpca.suggestions import listed

COUNT_ROUNDS = 1


@dataclass(frozen=True, slots=True)
class FeatureCountMethod(PrecededMethod):
    """Another method, after a round that counts."""

    own_rounds = COUNT_ROUNDS
    features: tuple[str, ...]
    least: int  # sites that must have each feature

    def update_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """A one or zero per feature, then what the inner method sends."""
        if round < COUNT_ROUNDS:
            return Layout(len(self.features), 1)
        return self.inner.update_layout(round - COUNT_ROUNDS, stage)

    def broadcast_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """Nothing before the count, then the inner broadcast."""
        return Layout(0, 0) if round < COUNT_ROUNDS else self.inner.broadcast_layout(round - COUNT_ROUNDS, stage)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """One more round of the inner method; BadInput names the features that too few sites have."""
        if consensus.round >= COUNT_ROUNDS:
            return _later(self.inner.advance(inner_consensus(consensus), total))
        counts = np.rint(total.sums.tensor[:, 0])
        rare = [name for name, count in zip(self.features, counts, strict=True) if count < self.least]
        if rare:
            told = f"fewer than {self.least} sites have any entry of {listed(rare, 20)}"
            raise BadInput(f"{told}: leave such features out of the spec, or find sites that have them")
        begun = self.inner.begin()
        return _later(replace(begun, memory={**begun.memory, **consensus.memory}))

    def site(self, columns: Columns) -> CountedSite:
        """The side of a participant that holds these columns."""
        return CountedSite(self.inner.site(columns), columns)

    def partitioned_answer(self, partition: Partition, round: int, broadcast: TensorMessage) -> TensorMessage:
        """One where any part has an entry, then what the inner method answers over the parts."""
        if round >= COUNT_ROUNDS:
            return self.inner.partitioned_answer(CountedPartition(partition), round - COUNT_ROUNDS, broadcast)
        parts = sum_of_answers(partition, self.update_layout(round), round, broadcast)
        return TensorMessage(np.minimum(parts.tensor, 1.0), parts.scalars)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The inner method's model."""
        return self.inner.model(inner_consensus(consensus))

    def verdict(self, consensus: Consensus) -> Verdict | None:
        """The inner method's; None before it has begun."""
        return None if consensus.round < COUNT_ROUNDS else self.inner.verdict(inner_consensus(consensus))


class CountedSite:
    """Tells which features it has, then delegates to the inner method's site."""

    def __init__(self, inner: Site, columns: Columns) -> None:
        self.inner, self._columns = inner, columns

    def answer(self, round: int, broadcast: TensorMessage) -> TensorMessage:
        """One for each feature with an entry here and zero for the others, or the inner site's update."""
        if round >= COUNT_ROUNDS:
            return self.inner.answer(round - COUNT_ROUNDS, broadcast)
        there = np.zeros(self._columns.shape[0], dtype=bool)
        for start, stop in blocks(self._columns):
            there |= ~np.isnan(self._columns.read(start, stop)).all(axis=1)
        return TensorMessage(there.astype(np.float64)[:, None], np.zeros(0))

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """The inner site's state."""
        return self.inner.snapshot()

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Restore an earlier snapshot."""
        self.inner.restore(snapshot)

    def finish(self, broadcast: TensorMessage) -> Iterable[ResultBlock]:
        """The inner site's result."""
        return self.inner.finish(broadcast)

    def certificate(self) -> dict[str, float]:
        """The certificate of the inner site."""
        return self.inner.certificate()


@dataclass(frozen=True, slots=True, eq=False)
class CountedPartition:
    """A partition for the inner method: the inner sites as parts."""

    partition: Partition

    @property
    def columns(self) -> Columns:
        """The site's whole matrix."""
        return self.partition.columns

    def total(self, task: PartTask) -> FloatArray:
        """The sum of what the inner sites answer."""
        return self.partition.total(InnerSiteTask(task))


@dataclass(frozen=True, slots=True, eq=False)
class InnerSiteTask:
    """Asks the inner site of a part."""

    task: PartTask

    def __call__(self, site: Site) -> FloatArray:
        """The inner site's answer."""
        assert isinstance(site, CountedSite)  # parts are sites of the method that asks
        return self.task(site.inner)


def inner_consensus(consensus: Consensus) -> Consensus:
    """The consensus as the inner method numbers it."""
    return replace(consensus, round=consensus.round - COUNT_ROUNDS)


def _later(inside: Consensus) -> Consensus:
    return replace(inside, round=inside.round + COUNT_ROUNDS)

"""Robust centring and scaling per feature, agreed in the spec and found by sums alone.

Opening rounds find each feature's median over all sites, then the median distance from it (MAD), both by
`federated_median`. The rounds of the method proper then run on (x − centre)/scale, and each site maps its result back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.federated_median import COUNTS, DIGITS, count, refine, value_of_prefix
from dcfpca.rpca.method import (
    Columns,
    Consensus,
    FloatArray,
    Layout,
    Method,
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
from dcfpca.rpca.thresholds import NORMAL_MEDIAN

SCALING_ROUNDS = 2 * DIGITS


@dataclass(slots=True, eq=False)
class ScaledColumns:
    """(x − centre)/scale of a site's columns. Centre and scale come with every broadcast."""

    columns: Columns
    centre: FloatArray
    scale: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.columns.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1, centred and scaled."""
        block = self.columns.read(start, stop) - self.centre[:, None]
        block /= self.scale[:, None]
        return block


@dataclass(frozen=True, slots=True)
class ScaledMethod(PrecededMethod):
    """Another method, on centred and scaled data, after rounds that find centre and scale."""

    own_rounds = SCALING_ROUNDS
    rows: int

    def update_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """Counts per feature while medians are sought, then what the inner method sends."""
        if round < SCALING_ROUNDS:
            return Layout(self.rows, COUNTS)
        return self.inner.update_layout(round - SCALING_ROUNDS, stage)

    def broadcast_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """Digits and centre while medians are sought; then the inner broadcast with centre and scale as scalars."""
        if round < SCALING_ROUNDS:
            return Layout(self.rows, 2) if round else Layout(0, 0)
        inner = self.inner.broadcast_layout(round - SCALING_ROUNDS, stage)
        return Layout(inner.rows, inner.columns, (*inner.scalars, *_names(self.rows)))

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """One more digit of the medians, or one more round of the inner method."""
        if consensus.round < SCALING_ROUNDS:
            return self._refine(consensus, total)
        broadcast, centre, scale = split_broadcast(consensus.broadcast, self.rows)
        inside = replace(consensus, round=consensus.round - SCALING_ROUNDS, broadcast=broadcast)
        return self._around(self.inner.advance(inside, total), centre, scale)

    def site(self, columns: Columns) -> ScaledSite:
        """The side of a participant that holds these columns."""
        return ScaledSite(self.inner, columns)

    def partitioned_answer(self, partition: Partition, round: int, broadcast: TensorMessage) -> TensorMessage:
        """The parts' counts added, then what the inner method answers over scaled parts."""
        if round < SCALING_ROUNDS:
            return sum_of_answers(partition, self.update_layout(round), round, broadcast)
        inside, centre, scale = split_broadcast(broadcast, self.rows)
        scaled = ScaledPartition(partition, ScaledColumns(partition.columns, centre, scale), broadcast)
        return self.inner.partitioned_answer(scaled, round - SCALING_ROUNDS, inside)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The inner method's model, in scaled units, with the centre and scale by which L = centre + scale · (U Vᵀ)."""
        broadcast, centre, scale = split_broadcast(consensus.broadcast, self.rows)
        inner = self.inner.model(replace(consensus, broadcast=broadcast))
        return inner | {"centre": centre + scale * inner.get("centre", 0.0), "scale": scale}

    def verdict(self, consensus: Consensus) -> Verdict | None:
        """The inner method's; None while medians are sought."""
        if consensus.round < SCALING_ROUNDS:
            return None
        broadcast, _, _ = split_broadcast(consensus.broadcast, self.rows)
        return self.inner.verdict(replace(consensus, round=consensus.round - SCALING_ROUNDS, broadcast=broadcast))

    def _refine(self, consensus: Consensus, total: Total) -> Consensus:
        prefix, centre = counting_state(consensus.broadcast, self.rows)
        prefix = refine(total.sums.tensor, prefix)
        done = consensus.round + 1
        if done == DIGITS:
            centre, prefix = value_of_prefix(prefix), np.zeros(self.rows)
        if done < SCALING_ROUNDS:
            return replace(
                consensus, round=done, broadcast=TensorMessage(np.column_stack([prefix, centre]), np.zeros(0))
            )
        begun = self.inner.begin()
        kept = replace(begun, memory={**begun.memory, **consensus.memory})
        return self._around(kept, centre, scale_from_mad(value_of_prefix(prefix)))

    def _around(self, inside: Consensus, centre: FloatArray, scale: FloatArray) -> Consensus:
        scalars = np.concatenate([inside.broadcast.scalars, centre, scale])
        return replace(
            inside, round=inside.round + SCALING_ROUNDS, broadcast=TensorMessage(inside.broadcast.tensor, scalars)
        )


class ScaledSite:
    """Answers the counting rounds, then delegates to the inner method's site on scaled columns."""

    def __init__(self, inner: Method, columns: Columns) -> None:
        rows = columns.shape[0]
        self._columns = columns
        self._scaled = ScaledColumns(columns, np.zeros(rows), np.ones(rows))
        self.inner: Site = inner.site(self._scaled)

    def answer(self, round: int, broadcast: TensorMessage) -> TensorMessage:
        """Counts of the site's entries by feature, or the inner site's update."""
        if round < SCALING_ROUNDS:
            return self._count(round, broadcast)
        return self.inner.answer(round - SCALING_ROUNDS, self.take_scaling(broadcast))

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """The inner site's state; centre and scale come with every broadcast."""
        return self.inner.snapshot()

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Restore an earlier snapshot."""
        self.inner.restore(snapshot)

    def finish(self, broadcast: TensorMessage) -> Iterator[ResultBlock]:
        """The inner result in the data's own units: L = centre + scale · U Vᵀ."""
        inside = self.take_scaling(broadcast)
        centre, scale = self._scaled.centre, self._scaled.scale
        units = scipy.sparse.diags_array(scale, format="csc")
        for block in self.inner.finish(inside):
            L = block.L * scale[:, None] + centre[:, None]
            yield ResultBlock(block.start, L, scipy.sparse.csc_array(units @ block.S), block.V, block.scores)

    def certificate(self) -> dict[str, float]:
        """The certificate of the inner site, in scaled units."""
        return self.inner.certificate()

    def take_scaling(self, broadcast: TensorMessage) -> TensorMessage:
        """Apply the scaling of this broadcast to the inner site's columns, and return the inner method's broadcast."""
        inside, self._scaled.centre, self._scaled.scale = split_broadcast(broadcast, self._columns.shape[0])
        return inside

    def _count(self, round: int, broadcast: TensorMessage) -> TensorMessage:
        rows = self._columns.shape[0]
        prefix, centre = counting_state(broadcast, rows)
        counts = np.zeros((rows, COUNTS))
        for start, stop in blocks(self._columns):
            values = self._columns.read(start, stop)
            if round >= DIGITS:
                values = np.abs(values - centre[:, None])
            counts += count(values, prefix, round % DIGITS)
        return TensorMessage(counts, np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class ScaledPartition:
    """A partition for the inner method: scaled columns, and the inner sites as parts."""

    partition: Partition
    columns: ScaledColumns
    broadcast: TensorMessage

    def total(self, task: PartTask) -> FloatArray:
        """The sum of what the inner sites answer."""
        return self.partition.total(InnerTask(task, self.broadcast))


@dataclass(frozen=True, slots=True, eq=False)
class InnerTask:
    """Asks the inner site of a part, with the scaling of this broadcast."""

    task: PartTask
    broadcast: TensorMessage

    def __call__(self, site: Site) -> FloatArray:
        """The inner site's answer."""
        assert isinstance(site, ScaledSite)  # parts are sites of the method that asks
        site.take_scaling(self.broadcast)
        return self.task(site.inner)


def counting_state(broadcast: TensorMessage, rows: int) -> tuple[FloatArray, FloatArray]:
    """The digits found so far and the centre, from the broadcast of a counting round; zeros in round 0."""
    if broadcast.tensor.size == 0:
        return np.zeros(rows), np.zeros(rows)
    return broadcast.tensor[:, 0], broadcast.tensor[:, 1]


def split_broadcast(broadcast: TensorMessage, rows: int) -> tuple[TensorMessage, FloatArray, FloatArray]:
    """The inner method's broadcast, the centre and the scale."""
    scalars, centre, scale = np.split(broadcast.scalars, [-2 * rows, -rows])
    return TensorMessage(broadcast.tensor, scalars), centre, scale


def scale_from_mad(deviation: FloatArray) -> FloatArray:
    """The deviation that corresponds to a MAD; 1 for a feature of which more than half the entries are equal."""
    return np.where(deviation > 0.0, NORMAL_MEDIAN * deviation, 1.0)


@lru_cache(maxsize=8)
def _names(rows: int) -> tuple[str, ...]:
    return (*(f"centre_{k}" for k in range(rows)), *(f"scale_{k}" for k in range(rows)))

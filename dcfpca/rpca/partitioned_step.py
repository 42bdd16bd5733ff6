"""The local step of a site with partitioned columns, where updates are sums over columns.

That is so for `subspace` and for the counts of scaling: every part answers for itself, and the answers are added.
"""

from __future__ import annotations

from dataclasses import dataclass

from dcfpca.rpca.method import FloatArray, Layout, Partition, Site, TensorMessage


def sum_of_answers(partition: Partition, layout: Layout, round: int, broadcast: TensorMessage) -> TensorMessage:
    """The parts' own answers, of this layout, added."""
    return TensorMessage.unflatten(layout, partition.total(PartAnswer(round, broadcast)))


@dataclass(frozen=True, slots=True, eq=False)
class PartAnswer:
    """Asks a part for its own answer to a broadcast."""

    round: int
    broadcast: TensorMessage

    def __call__(self, site: Site) -> FloatArray:
        """The part's answer as one vector."""
        return site.answer(self.round, self.broadcast).flat()

"""Stage `count`: how many sites have each feature, before anything else is summed, where sites may lack some.

A sum about a feature that only one site has is that site's own number. So the first round of such a run counts, by a
sum of ones, how many sites have any entry of each feature. If a feature has too few sites, the run ends there. Sites
that verify sums reach the same conclusion and answer no later round of a run that should have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dcfpca.errors import BadInput, listed
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Consensus, Layout, TensorMessage, Total
from dcfpca.rpca.stage import Partition, QuietStage
from dcfpca.rpca.stage_checks import broken_count
from dcfpca.rpca.stage_list import Method, StagedSite

COUNT = "count"


class FeatureCount(QuietStage):
    """One round that counts, before stage `then`; `least` sites must have each feature."""

    def __init__(self, features: Sequence[str], least: int, then: str) -> None:
        super().__init__(COUNT, up=Layout(len(features), 1), then=then)
        self._features, self._least = tuple(features), least

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """One for each feature with an entry here, and zero for the others."""
        columns = site.view.own
        there = np.zeros(columns.shape[0], dtype=bool)
        for start, stop in blocks(columns):
            there |= ~np.isnan(columns.read(start, stop)).all(axis=1)
        return TensorMessage(there.astype(np.float64)[:, None], np.zeros(0))

    def combine(self, partition: Partition, asked: Consensus) -> TensorMessage:
        """One where any part has an entry."""
        parts = super().combine(partition, asked)
        return TensorMessage(np.minimum(parts.tensor, 1.0), parts.scalars)

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """All of it: sites are counted, not entries."""
        return exact

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """Go on to the next stage; BadInput names the features that too few sites have."""
        counts = np.rint(total.sums.tensor[:, 0])
        rare = [name for name, count in zip(self._features, counts, strict=True) if count < self._least]
        if rare:
            found = f"fewer than {self._least} sites have any entry of {listed(rare, 20)}"
            raise BadInput(f"{found}: leave such features out of the spec, or find sites that have them")
        return replace(consensus, round=consensus.round + 1, stage=self.then[0])

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """A feature is counted by no more sites than there are."""
        return broken_count(total.sums.tensor, total.rounding[0], total.contributors, "the count of a feature's sites")


def counting_features(method: Method, features: Sequence[str], least: int) -> Method:
    """The method after a round that counts."""
    return replace(method, stages=(FeatureCount(features, least, method.stages[0].name), *method.stages))

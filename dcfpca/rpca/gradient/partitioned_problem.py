"""The local problem of `gradient` over partitioned columns.

Every local iteration goes on from the slope over all columns, so each is one question to all parts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.gradient.local_step import GradientSums
from dcfpca.rpca.gradient.objective import Penalties
from dcfpca.rpca.gradient.site import GradientSite
from dcfpca.rpca.method import Columns, FloatArray, Partition, Site


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedProblem:
    """A `LocalProblem` whose sums are taken over the parts."""

    partition: Partition

    @property
    def columns(self) -> Columns:
        """The site's whole matrix."""
        return self.partition.columns

    def fit(self, U: FloatArray, penalties: Penalties) -> GradientSums:
        """Fit V to this U in every part."""
        total = self.partition.total(GradientPass(U, penalties))
        return GradientSums(total[: U.size].reshape(U.shape), total[U.size :])


@dataclass(frozen=True, slots=True, eq=False)
class GradientPass:
    """Asks a part for its sums under this U."""

    U: FloatArray
    penalties: Penalties

    def __call__(self, site: Site) -> FloatArray:
        """The part's slope and VᵀV as one vector."""
        assert isinstance(site, GradientSite)  # parts are sites of the method that asks
        sums = site.fit(self.U, self.penalties)
        return np.concatenate([sums.slope.ravel(), sums.gram])

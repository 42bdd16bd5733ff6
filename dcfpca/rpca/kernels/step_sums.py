"""The sums over a site's blocks in a round: the update, and counts of residual sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dcfpca.rpca.kernels.compiled_loops import active_loops
from dcfpca.rpca.kernels.step_parameters import Momentum, StepPlan
from dcfpca.rpca.method import FloatArray, WorkArray

if TYPE_CHECKING:
    from dcfpca.rpca.kernels.block_step import FactoredData

# Residual sizes are counted in powers of two around the last known noise, from 2⁻¹⁴ to 2⁵ times it.
HISTOGRAM_LOWEST = -14
HISTOGRAM_BINS = 20
ROWS = 256  # of a product that needs a place of its own: it stays in cache


@dataclass(slots=True, eq=False)
class StepSums:
    """The sums over a site's blocks."""

    tensor: FloatArray  # Σ Y V̂, m × p
    histogram: FloatArray
    influence: float = 0.0  # Σ ψ(R)² over the sampled entries, in units of noise²
    kept: float = 0.0  # sampled entries with |ψ(R)| ≥ |R|/2
    sampled: float = 0.0  # sampled entries, observed or not
    empty: bool = True  # no product was added yet

    def add_product(self, Y: WorkArray | FactoredData, right: WorkArray) -> None:
        """Add Y · right of a block, a few rows at a time where that needs a place of its own."""
        if not isinstance(Y, np.ndarray):
            self.tensor += Y.times(right)
        elif self.empty and right.dtype == self.tensor.dtype:
            np.matmul(Y, right, out=self.tensor)
        else:
            for first in range(0, self.tensor.shape[0], ROWS):
                rows = slice(first, first + ROWS)
                self.tensor[rows] = Y[rows] @ right if self.empty else self.tensor[rows] + Y[rows] @ right
        self.empty = False

    def close(self, momentum: Momentum | None) -> None:
        """After the last block: take β L_before out of the update, a few rows at a time."""
        if momentum is None:
            return
        before = momentum.factor * momentum.before_sum
        for first in range(0, self.tensor.shape[0], ROWS):
            rows = slice(first, first + ROWS)
            self.tensor[rows] -= momentum.U_before[rows].astype(before.dtype, copy=False) @ before


def count_residuals(M: WorkArray, L: WorkArray, plan: StepPlan, sums: StepSums) -> None:
    """Add the sampled rows' residuals M − L to the histogram, to Σ ψ² and to the count of those that ψ mostly keeps."""
    squared, kept = active_loops().count(
        M, L, plan.sample, plan.threshold, plan.a, plan.noise, HISTOGRAM_LOWEST, sums.histogram
    )
    sums.influence += squared
    sums.kept += kept
    sums.sampled += float(plan.sample.size * L.shape[1])


def histogram_quantile(share: float, counts: FloatArray, unit: float, lowest: int, step: int = 1) -> float:
    """The size below which this share of what `exponent_histogram` counted lies, sizes evenly spread within a bin.

    0 for no counts.
    """
    cumulative = np.cumsum(counts)
    wanted = share * cumulative[-1]
    if wanted <= 0.0:
        return 0.0
    place = int(np.searchsorted(cumulative, wanted))
    part = (wanted - cumulative[place] + counts[place]) / counts[place]
    low = unit * 2.0 ** (lowest - 1 + place * step)
    return float(low * (1.0 + part * (2.0**step - 1.0)))

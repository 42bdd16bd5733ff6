"""The sums over a site's blocks in a round: the update, and counts of residual sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.kernels.array_types import WorkArray
from dcfpca.rpca.kernels.loop_selection import active_loops
from dcfpca.rpca.kernels.momentum import Momentum
from dcfpca.rpca.kernels.step_parameters import StepPlan
from dcfpca.rpca.method import FloatArray

# Residual sizes are counted in powers of two around the last known noise, from 2⁻¹⁴ to 2⁵ times it.
HISTOGRAM_LOWEST = -14
HISTOGRAM_BINS = 20


@dataclass(slots=True, eq=False)
class StepSums:
    """The sums over a site's blocks."""

    tensor: FloatArray  # Σ Y V̂, m × p
    moved: FloatArray  # Σ of how far the coefficients of L moved within the round, transposed, times V̂
    histogram: FloatArray
    influence: float = 0.0  # Σ ψ(R)² over the sampled entries, in units of noise²
    kept: float = 0.0  # sampled entries with |ψ(R)| ≥ |R|/2
    sampled: float = 0.0  # sampled entries, observed or not

    @staticmethod
    def zeros(plan: StepPlan, room: FloatArray) -> StepSums:
        """Nothing added yet; the tensor is the first columns of an array of zeros, which may be wider."""
        moved = np.zeros((plan.entering.places.size, plan.width))
        return StepSums(room[:, : plan.width], moved, np.zeros(HISTOGRAM_BINS))

    def close(self, plan: StepPlan, momentum: Momentum | None) -> None:
        """After the last block: add how far L moved while outliers were corrected, and momentum, to the update."""
        amended = plan.amending and plan.step != 1.0
        if momentum is not None:
            within = momentum.factor * momentum.now_sum
            if amended:
                within[plan.entering.places] += ((1.0 - plan.step) * self.moved).astype(within.dtype)
            gained: WorkArray = plan.U @ within
            gained -= momentum.U_before @ (momentum.factor * momentum.before_sum)
            self.tensor += gained
        elif amended:
            self.tensor += plan.entering.U @ ((1.0 - plan.step) * self.moved).astype(plan.U.dtype)


def count_residuals(M: WorkArray, L: WorkArray, plan: StepPlan, sums: StepSums) -> None:
    """Add the sampled rows' residuals M − L to the histogram, to Σ ψ² and to the count of those that ψ mostly keeps."""
    squared, kept = active_loops().count(
        M, L, plan.sample, plan.threshold, plan.a, plan.noise, HISTOGRAM_LOWEST, sums.histogram
    )
    sums.influence += squared
    sums.kept += kept
    sums.sampled += float(plan.sample.size * L.shape[1])


def histogram_median(counts: FloatArray, unit: float, lowest: int, step: int = 1) -> float:
    """The median of what was counted by `exponent_histogram`, evenly spread within its bin; 0 for no counts."""
    cumulative = np.cumsum(counts)
    half = cumulative[-1] / 2.0
    if half <= 0.0:
        return 0.0
    place = int(np.searchsorted(cumulative, half))
    share = (half - cumulative[place] + counts[place]) / counts[place]
    low = unit * 2.0 ** (lowest - 1 + place * step)
    return float(low * (1.0 + share * (2.0**step - 1.0)))

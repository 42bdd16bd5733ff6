"""The site's arithmetic on one block of columns. Pure; every engine calls `block_step` in a loop and adds up.

With U orthonormal and the coefficients V = YᵀU of the cleaned data Y, a local pass is

    R = M − U D Vᵀ,   V ← V D + ω ψ(R)ᵀU,   Y = U D Vᵀ + ω ψ(R)

so neither Y nor S is state: V (n_i × p) is all a site carries from pass to pass and round to round, and a block of
M is read once per round however many passes are made on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.exchange import FloatArray
from dcfpca.rpca.thresholds import pull

# Residual sizes are counted in powers of two around the last known noise, from 2⁻¹⁴ to 2⁵ times it.
HISTOGRAM_LOWEST = -14
HISTOGRAM_BINS = 20


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """What a site needs to know to do its local passes; all of it comes from the broadcast and the settings."""

    U: FloatArray  # m × p, orthonormal columns
    weights: FloatArray  # d: how much of each direction enters L
    scales: FloatArray  # what each direction's coefficients are divided by in the update
    threshold: float  # θ
    a: float  # a of firm thresholding
    relaxation: float  # ω
    noise: float  # the unit of the histogram
    passes: int
    sample: NDArray[np.intp]  # rows on which residuals are counted


@dataclass(slots=True, eq=False)
class StepSums:
    """What the blocks of a site add up to."""

    tensor: FloatArray  # Σ ω ψ(R) V̂, m × p
    gram: FloatArray  # Σ D Vᵀ V̂, p × p
    histogram: FloatArray
    pull: float = 0.0  # Σ ψ(R)² over the sampled entries, in units of noise²
    kept: float = 0.0  # sampled entries whose residual still pulls
    sampled: float = 0.0  # sampled entries, observed or not

    @staticmethod
    def zeros(rows: int, width: int) -> StepSums:
        """Nothing added yet."""
        return StepSums(np.zeros((rows, width)), np.zeros((width, width)), np.zeros(HISTOGRAM_BINS))

    def update(self, U: FloatArray) -> FloatArray:
        """Z = Σ Y V̂, the tensor the site sends."""
        return self.tensor + U @ self.gram


def block_step(M: FloatArray, V: FloatArray, plan: StepPlan, sums: StepSums) -> None:
    """Make the local passes on one block: update its coefficients V (b × p) in place and add to the sums."""
    missing = observed_gaps(M)
    R = np.empty(M.shape)
    room = np.empty(M.shape)
    shrunk = V
    for number in range(plan.passes):
        shrunk = V * plan.weights
        residual(M, missing, plan.U, shrunk, R)
        if number == plan.passes - 1:
            count_residuals(R, missing, plan, sums)
        pull_in_place(R, plan.threshold, plan.a, room)
        np.matmul(R.T, plan.U, out=V)
        V *= plan.relaxation
        V += shrunk
    right = V / plan.scales
    sums.gram += shrunk.T @ right
    sums.tensor += plan.relaxation * (R @ right)


def observed_gaps(M: FloatArray) -> NDArray[np.bool_] | None:
    """Where M is missing, or None where it is complete."""
    missing = np.isnan(M)
    return missing if missing.any() else None


def residual(M: FloatArray, missing: NDArray[np.bool_] | None, U: FloatArray, V: FloatArray, out: FloatArray) -> None:
    """out = M − U Vᵀ, and 0 where M is missing, so that nothing unobserved pulls."""
    np.matmul(U, V.T, out=out)
    np.subtract(M, out, out=out)
    if missing is not None:
        out[missing] = 0.0


def pull_in_place(R: FloatArray, threshold: float, a: float, room: FloatArray) -> None:
    """R ← ψ(R), with `room` as work space; the same function as `thresholds.pull`."""
    np.abs(R, out=room)
    np.subtract(a * threshold, room, out=room)
    room *= 1.0 / (a - 1.0)
    np.maximum(room, 0.0, out=room)
    np.minimum(R, room, out=R)
    np.negative(room, out=room)
    np.maximum(R, room, out=R)


def count_residuals(R: FloatArray, missing: NDArray[np.bool_] | None, plan: StepPlan, sums: StepSums) -> None:
    """Count the sizes of the residuals on the sampled rows, and how many of them still pull."""
    sizes = np.abs(R[plan.sample])
    pulls = pull(sizes, plan.threshold, plan.a)
    kept = pulls >= 0.5 * sizes
    if missing is not None:
        kept &= ~missing[plan.sample]
    sums.histogram += exponent_histogram(sizes, plan.noise, HISTOGRAM_LOWEST, HISTOGRAM_BINS)
    sums.pull += float(np.sum((pulls / plan.noise) ** 2))
    sums.kept += float(np.count_nonzero(kept))
    sums.sampled += float(sizes.size)


def exponent_histogram(sizes: FloatArray, unit: float, lowest: int, bins: int, step: int = 1) -> FloatArray:
    """Counts of the non-zero sizes by powers of 2^step: bin k starts at unit·2^(lowest − 1 + k·step).

    The first and last bins also take what lies beyond. Counts, unlike medians, add up over sites.
    """
    positive = sizes[sizes > 0.0]
    _, exponents = np.frexp(positive / unit)
    places = np.clip((exponents - lowest) // step, 0, bins - 1)
    return np.bincount(places, minlength=bins).astype(np.float64)


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

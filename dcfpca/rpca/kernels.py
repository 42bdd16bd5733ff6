"""The site's arithmetic on one block of columns. Pure; every engine calls `block_step` in a loop and adds up.

With U orthonormal and the coefficients V = YᵀU of the cleaned data Y, a local pass is

    R = M − U D Vᵀ,   Y = U D Vᵀ + ω ψ(R),   V ← YᵀU

so neither Y nor S is state: V (n_i × p) is all a site carries from pass to pass and round to round, and a block of
M is read once per round however many passes are made on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.exchange import FloatArray
from dcfpca.rpca.fused import Work, fused
from dcfpca.rpca.thresholds import pull

# Residual sizes are counted in powers of two around the last known noise, from 2⁻¹⁴ to 2⁵ times it.
HISTOGRAM_LOWEST = -14
HISTOGRAM_BINS = 20


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """What a site needs to know to do its local passes; all of it comes from the broadcast and the settings."""

    U: Work  # m × p, orthonormal columns, in the precision of the round
    scales: FloatArray  # what each direction's coefficients are divided by in the update
    threshold: float  # θ
    a: float  # a of firm thresholding
    relaxation: float  # ω of the passes that only settle V
    step: float  # ω of the last pass, which the update is made of
    noise: float  # the unit of the histogram
    passes: int
    sample: NDArray[np.intp]  # rows on which residuals are counted
    entering: Entering

    @property
    def width(self) -> int:
        """p."""
        return int(self.U.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Entering:
    """The directions with d > 0. Only they make L, so only they are worked on until the last pass of a round."""

    places: NDArray[np.intp]
    U: Work
    weights: Work

    @staticmethod
    def of(U: Work, weights: FloatArray) -> Entering:
        """Pick them; no copy where all enter."""
        places = np.flatnonzero(weights)
        return Entering(places, U if places.size == weights.size else U[:, places], weights[places].astype(U.dtype))


@dataclass(slots=True, eq=False)
class StepSums:
    """What the blocks of a site add up to."""

    tensor: FloatArray  # Σ Y V̂, m × p
    histogram: FloatArray
    pull: float = 0.0  # Σ ψ(R)² over the sampled entries, in units of noise²
    kept: float = 0.0  # sampled entries whose residual still pulls
    sampled: float = 0.0  # sampled entries, observed or not

    @staticmethod
    def zeros(plan: StepPlan) -> StepSums:
        """Nothing added yet."""
        return StepSums(np.zeros(plan.U.shape), np.zeros(HISTOGRAM_BINS))


@dataclass(frozen=True, slots=True, eq=False)
class Push:
    """Momentum: Y has β (L − L_before) added, and the update with it. Both are products of thin factors, so that no
    more than coefficients are worked on: V changes block by block, the update at the end, by two sums of p × p."""

    factor: float  # β
    before: FloatArray  # n_i × p, the coefficients of L_before in …
    U_before: FloatArray  # … the subspace it was made in
    turn: FloatArray  # U_beforeᵀ U
    now_sum: FloatArray  # Σ over blocks of the coefficients of L, transposed, times V̂
    before_sum: FloatArray  # the same of L_before

    @staticmethod
    def of(factor: float, before: FloatArray, U_before: FloatArray, U: Work) -> Push:
        """Nothing added yet."""
        width, turn = U.shape[1], U_before.T @ U
        return Push(factor, before, U_before, turn, np.zeros((width, width)), np.zeros(turn.shape))

    def turn_block(self, first: int, V: FloatArray, fitted: FloatArray) -> None:
        """Add the push to V of the block that begins here, whose L has the coefficients `fitted`."""
        V += self.factor * (fitted - self.before[first : first + V.shape[0]] @ self.turn)

    def add_block(self, first: int, fitted: FloatArray, right: Work) -> None:
        """Take the block into the sums; `right` is its V̂."""
        self.now_sum[:] += fitted.T @ right
        self.before_sum[:] += self.before[first : first + right.shape[0]].T @ right

    def tensor(self, U: Work) -> FloatArray:
        """What the update gains, all blocks taken."""
        gained: FloatArray = self.factor * (U @ self.now_sum - self.U_before @ self.before_sum)
        return gained


@dataclass(frozen=True, slots=True, eq=False)
class Desk:
    """Room for one block and its residual, in the precision of the round; contiguous, as the compiled loops want it."""

    M: Work
    L: Work

    @staticmethod
    def of(size: int, plan: StepPlan) -> Desk:
        """A desk for blocks of up to this many entries."""
        return Desk(np.empty(size, plan.U.dtype), np.empty(size, plan.U.dtype))

    def lay(self, M: FloatArray) -> tuple[Work, Work]:
        """M put on the desk, and the room beside it."""
        laid = self.M[: M.size].reshape(M.shape)
        with np.errstate(over="ignore"):  # an outlier beyond float32 becomes Inf, which does not pull either
            np.copyto(laid, M)
        return laid, self.L[: M.size].reshape(M.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A site's coefficients (n_i × p) after its passes, or a block's: those of Y, and of the L that Y was made from."""

    V: FloatArray
    L: FloatArray

    @staticmethod
    def room(columns: int, width: int) -> Fit:
        """Room for so many columns."""
        return Fit(np.empty((columns, width)), np.zeros((columns, width)))

    def block(self, first: int, last: int) -> Fit:
        """These columns' part, as views."""
        return Fit(self.V[first:last], self.L[first:last])


def block_step(
    M: FloatArray, start: Work, fit: Fit, plan: StepPlan, sums: StepSums, desk: Desk, push: Push | None, first: int
) -> None:
    """The local passes on one block, from these coefficients of the entering directions; fills `fit`, adds to the sums.

    `first` is the block's first column within the site.
    """
    Y = settle(M, start, fit, plan, sums, desk)
    if push is not None:
        push.turn_block(first, fit.V, fit.L)
    right = (fit.V / plan.scales).astype(plan.U.dtype)
    sums.tensor += Y @ right
    if push is not None:
        push.add_block(first, fit.L, right)


def settle(M: FloatArray, start: Work, fit: Fit, plan: StepPlan, sums: StepSums, desk: Desk) -> Work:
    """The local passes on one block: fills `fit` and returns Y, which lies on the desk."""
    entering = plan.entering
    laid, L = desk.lay(M)
    shrunk = start * entering.weights
    for _ in range(plan.passes - 1):
        np.matmul(entering.U, shrunk.T, out=L)
        sweep(laid, L, plan, 0.0, plan.relaxation)
        shrunk = (shrunk + L.T @ entering.U) * entering.weights
    np.matmul(entering.U, shrunk.T, out=L)
    count_residuals(laid, L, plan, sums)
    sweep(laid, L, plan, 1.0, plan.step)
    fit.V[:] = L.T @ plan.U
    fit.L[:, entering.places] = shrunk
    return L


def sweep(M: Work, L: Work, plan: StepPlan, keep: float, relaxation: float) -> None:
    """L ← keep·L + ω ψ(M − L): ω ψ(R) or Y. Where M is missing nothing pulls."""
    compiled = fused()
    function = compiled.sweep if compiled is not None else sweep_reference
    function(M, L, plan.threshold, plan.a, keep, relaxation)


def sweep_reference(M: Work, L: Work, threshold: float, a: float, keep: float, relaxation: float) -> None:
    """The same in numpy."""
    R = M - L
    pulls = pull(R, threshold, a)
    pulls *= relaxation
    np.nan_to_num(pulls, copy=False, nan=0.0)
    L *= keep
    L += pulls


def count_residuals(M: Work, L: Work, plan: StepPlan, sums: StepSums) -> None:
    """Count the sizes of the residuals M − L on the sampled rows, how much they pull, and how many still do."""
    compiled = fused()
    arguments = (M, L, plan.sample, plan.threshold, plan.a, plan.noise, HISTOGRAM_LOWEST, sums.histogram)
    pulled, kept = (compiled.count if compiled is not None else count_reference)(*arguments)
    sums.pull += pulled
    sums.kept += kept
    sums.sampled += float(plan.sample.size * M.shape[1])


def count_reference(
    M: Work,
    L: Work,
    rows: NDArray[np.intp],
    threshold: float,
    a: float,
    unit: float,
    lowest: int,
    histogram: FloatArray,
) -> tuple[float, float]:
    """The same in numpy: (Σ(ψ/unit)², kept), counting sizes into the histogram."""
    sizes = np.abs(M[rows] - L[rows])
    sizes = sizes[~np.isnan(sizes)]
    pulls = pull(sizes, threshold, a)
    histogram += exponent_histogram(sizes, unit, lowest, histogram.size)
    return float(np.sum((pulls / unit) ** 2)), float(np.count_nonzero(pulls >= 0.5 * sizes))


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

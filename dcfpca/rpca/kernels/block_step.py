"""The site's arithmetic on one block of columns. Pure; every engine calls `block_step` in a loop and adds up.

With U orthonormal and the coefficients V = YᵀU of the cleaned data Y, a local pass is

    R = M − U D Vᵀ,   Y = U D Vᵀ + ω ψ(R),   V ← YᵀU

so neither Y nor S is state: V (n_i × p) is all a site carries from pass to pass and round to round, and a block of
M is read once per round however many passes are made on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from dcfpca.rpca.kernels.loop_selection import fused
from dcfpca.rpca.kernels.scratch_arrays import Flags, Work
from dcfpca.rpca.kernels.thin_pass import WALKED_COLUMNS, WALKED_WIDTH, Pulled, pulled, pulls_room, walked
from dcfpca.rpca.method import FloatArray

# Residual sizes are counted in powers of two around the last known noise, from 2⁻¹⁴ to 2⁵ times it.
HISTOGRAM_LOWEST = -14
HISTOGRAM_BINS = 20
AMENDED_WIDTH = 16  # below, a pass over all entries costs little, and looking at each of them again frees a few more
AMENDED_SHARE = 0.12  # up to this share of outliers, amending them costs less than a pass over all entries


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """What a site needs to know to do its local passes; all of it comes from the broadcast and the settings."""

    U: Work  # m × p, orthonormal columns, in the precision of the round
    scales: FloatArray  # what each direction's coefficients are divided by in the update, its unit among it
    threshold: float  # θ
    a: float  # a of firm thresholding
    relaxation: float  # ω of the passes that only settle V
    step: float  # ω of the last pass, which the update is made of
    noise: float  # the unit of the histogram
    passes: int
    sample: NDArray[np.intp]  # rows on which residuals are counted
    entering: Entering

    @property
    def amending(self) -> bool:
        """Whether later passes only amend; by figures all sites share, so that the split does not matter."""
        return amends(self.passes, self.width, self.relaxation)

    @property
    def walking(self) -> bool:
        """Whether there are so few directions that passes are walks …"""
        return 0 < self.width <= WALKED_WIDTH

    def walks(self, M: FloatArray) -> bool:
        """… over this block, which has enough columns for one."""
        return self.walking and M.shape[1] >= WALKED_COLUMNS

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
        return Entering(places, picked(U, places), weights[places].astype(U.dtype))


def amends(passes: int, width: int, relaxation: float) -> bool:
    """Whether a round of so many passes over so many directions amends; 1 − 1/ω is the share of outliers."""
    return passes > 1 and width >= AMENDED_WIDTH and 1.0 - 1.0 / relaxation <= AMENDED_SHARE


def picked(U: Work, places: NDArray[np.intp]) -> Work:
    """These columns, row after row in memory as the loops want them; no copy where it is all of them."""
    return U if places.size == U.shape[1] else np.take(U, places, axis=1)


@dataclass(slots=True, eq=False)
class StepSums:
    """What the blocks of a site add up to."""

    tensor: FloatArray  # Σ Y V̂, m × p
    moved: FloatArray  # Σ of how far the coefficients of L moved within the round, transposed, times V̂
    histogram: FloatArray
    pull: float = 0.0  # Σ ψ(R)² over the sampled entries, in units of noise²
    kept: float = 0.0  # sampled entries whose residual still pulls
    sampled: float = 0.0  # sampled entries, observed or not

    @staticmethod
    def zeros(plan: StepPlan, room: FloatArray) -> StepSums:
        """Nothing added yet; the tensor takes the first columns of a room of zeros, which may be wider."""
        moved = np.zeros((plan.entering.places.size, plan.width))
        return StepSums(room[:, : plan.width], moved, np.zeros(HISTOGRAM_BINS))

    def close(self, plan: StepPlan, push: Push | None) -> None:
        """All blocks added: complete the update by what L moved while Y was amended, and by the push."""
        amended = plan.amending and plan.step != 1.0
        if push is not None:
            within = push.factor * push.now_sum
            if amended:
                within[plan.entering.places] += ((1.0 - plan.step) * self.moved).astype(within.dtype)
            gained: Work = plan.U @ within
            gained -= push.U_before @ (push.factor * push.before_sum)
            self.tensor += gained
        elif amended:
            self.tensor += plan.entering.U @ ((1.0 - plan.step) * self.moved).astype(plan.U.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class Push:
    """Momentum: Y has β (L − L_before) added, and the update with it. Both are products of thin factors, so that no
    more than coefficients are worked on: V changes block by block, the update at the end, by two sums of p × p."""

    factor: float  # β
    before: Work  # n_i × p, the coefficients of L_before in …
    U_before: Work  # … the subspace it was made in
    turn: Work  # U_beforeᵀ U
    now_sum: Work  # Σ over blocks of the coefficients of L, transposed, times V̂
    before_sum: Work  # the same of L_before

    @staticmethod
    def of(factor: float, before: FloatArray, U_before: Work, turn: Work) -> Push:
        """Nothing added yet."""
        dtype, width = turn.dtype, turn.shape[1]
        sums = np.zeros((width, width), dtype), np.zeros(turn.shape, dtype)
        return Push(factor, before.astype(dtype, copy=False), U_before.astype(dtype, copy=False), turn, *sums)

    def turn_block(self, first: int, V: FloatArray, fitted: FloatArray) -> None:
        """Add the push to V of the block that begins here, whose L has the coefficients `fitted`."""
        V += self.factor * (fitted - self.before[first : first + V.shape[0]] @ self.turn)

    def add_block(self, first: int, fitted: FloatArray, right: Work) -> None:
        """Take the block into the sums; `right` is its V̂."""
        self.now_sum[:] += fitted.astype(right.dtype, copy=False).T @ right
        self.before_sum[:] += self.before[first : first + right.shape[0]].T @ right


@dataclass(slots=True, eq=False)
class Desk:
    """Room for one block's L, Y or pulls, in the precision of the round, and for a copy of the block where needed."""

    L: Work
    marked: Flags
    laid: FloatArray  # the block last laid, as the loops read it: they go by the shape of L, it may be wider

    @staticmethod
    def of(size: int, plan: StepPlan) -> Desk:
        """A desk for blocks of up to this many entries."""
        marked = np.empty(size if plan.amending else 0, np.uint8)
        room = pulls_room(size, plan) if plan.walking else np.empty(size, plan.U.dtype)
        return Desk(room, marked, np.empty((0, 0)))

    def lay(self, M: FloatArray) -> tuple[Work, Work]:
        """M for the loops to read, and the room beside it."""
        there = where_it_lies(M) if M.dtype == np.float64 else None
        self.laid = self._copy(M) if there is None else there
        return self.laid, self.L[: M.size].reshape(M.shape)

    def _copy(self, M: FloatArray) -> FloatArray:
        laid = self.laid if self.laid.shape == M.shape else np.empty(M.shape)
        np.copyto(laid, M)
        return laid


def where_it_lies(M: FloatArray) -> FloatArray | None:
    """M as the first columns of a matrix whose rows follow one another, as loops are compiled for; None if it is not.

    What lies beyond M's columns belongs to somebody else, beyond the last row perhaps to nobody: it must not be read.
    """
    between, size = M.strides[0], M.itemsize
    if M.strides[1] != size or between % size or between < M.shape[1] * size:
        return None
    return as_strided(M, (M.shape[0], between // size))


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
    Y = settle(M, start, fit, plan, desk, sums)
    if push is not None:
        push.turn_block(first, fit.V, fit.L)
    right = (fit.V / plan.scales).astype(plan.U.dtype)
    sums.tensor += Y.times(right) if isinstance(Y, Pulled) else Y @ right
    if plan.amending:
        sums.moved += (fit.L[:, plan.entering.places] - start * plan.entering.weights).T @ right
    if push is not None:
        push.add_block(first, fit.L, right)


def settle(
    M: FloatArray, start: Work, fit: Fit, plan: StepPlan, desk: Desk, sums: StepSums | None = None
) -> Work | Pulled:
    """The local passes on one block: fills `fit` and returns Y, which lies on the desk. Counts where there are sums.

    While few entries are outliers only the first pass looks at all of them. The others amend Y where the first found
    a residual that does not pull whole, which costs as many products as there are outliers.
    """
    shrunk, (laid, L) = start * plan.entering.weights, desk.lay(M)
    if plan.walks(M):
        shrunk = walked(laid, shrunk, plan, desk.L)
        if sums is not None:
            few = replace(plan, sample=np.arange(plan.sample.size))
            count_residuals(M[plan.sample], plan.entering.U[plan.sample] @ shrunk.T, few, sums)
        return pulled(laid, shrunk, fit, plan, desk.L)
    return _multiplied(laid, L, shrunk, fit, plan, desk, sums)


def _multiplied(laid: Work, L: Work, shrunk: Work, fit: Fit, plan: StepPlan, desk: Desk, sums: StepSums | None) -> Work:
    """The passes by products of matrices, L written down."""
    loops, entering = fused(), plan.entering
    for _ in range(0 if plan.amending else plan.passes - 1):
        np.matmul(entering.U, shrunk.T, out=L)
        loops.sweep(laid, L, plan.threshold, plan.a, 0.0, plan.relaxation)
        shrunk = (shrunk + L.T @ entering.U) * entering.weights
    if shrunk.any():
        np.matmul(entering.U, shrunk.T, out=L)
    else:
        L.fill(0.0)
    if sums is not None:
        count_residuals(laid, L, plan, sums)
    if plan.amending:
        _amended(laid, L, shrunk, fit, plan, desk)
        return L
    loops.sweep(laid, L, plan.threshold, plan.a, 1.0, plan.step)
    fit.V[:] = L.T @ plan.U
    fit.L[:, entering.places] = shrunk
    return L


def _amended(M: Work, L: Work, shrunk: Work, fit: Fit, plan: StepPlan, desk: Desk) -> None:
    """Make Y of L, then let it follow L as it moves on by ΔL, pass by pass.

    Where the residual pulls whole, Y = L + ω (M − L) gains (1 − ω) ΔL; where it does not, all of ΔL. The first is done
    everywhere, with thin factors (here for V, in `StepSums.close` for the update), the rest where entries are marked.
    """
    loops, entering = fused(), plan.entering
    marked = desk.marked[: L.size].reshape(L.shape)
    loops.mark(M, L, marked, plan.threshold, plan.a, plan.step)
    V = L.T @ plan.U
    for _ in range(plan.passes - 1):
        pulled = (V[:, entering.places] - shrunk) * (plan.relaxation / plan.step)
        moved = ((shrunk + pulled) * entering.weights - shrunk).astype(V.dtype, copy=False)
        gained = np.zeros_like(V)
        loops.amend(marked, L, entering.U, moved * V.dtype.type(plan.step), plan.U, gained)
        V += gained
        V[:, entering.places] += (1.0 - plan.step) * moved
        shrunk = shrunk + moved
    fit.V[:] = V
    fit.L[:, entering.places] = shrunk


def count_residuals(M: Work, L: Work, plan: StepPlan, sums: StepSums) -> None:
    """Count the sizes of the residuals M − L on the sampled rows, how much they pull, and how many still do."""
    pulled, kept = fused().count(
        M, L, plan.sample, plan.threshold, plan.a, plan.noise, HISTOGRAM_LOWEST, sums.histogram
    )
    sums.pull += pulled
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

"""The site's arithmetic on one block of columns. Pure; every engine calls `block_step` in a loop and adds up.

With U orthonormal and the coefficients V = YᵀU of the cleaned data Y, a local pass is

    R = M − U D Vᵀ,   Y = U D Vᵀ + ω ψ(R),   V ← YᵀU

so neither Y nor S is state: V (n_i × p) is all a site carries from pass to pass and round to round, and a block of
M is read once per round however many passes are made on it.

Over many directions a pass is two matrix products, with L formed in the scratch buffer. A product with few directions
is bound by memory traffic, so there one sweep over M forms L entry by entry, evaluates the influence ψ(r) and adds it
to the sums at once. Its last pass keeps the influences: Y = L + ω ψ(R), and L is a thin product.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dcfpca.rpca.column_blocks import read_only
from dcfpca.rpca.kernels.compiled_loops import active_loops
from dcfpca.rpca.kernels.numpy_loops import HISTOGRAM_LOWEST
from dcfpca.rpca.kernels.step_parameters import ROWS, Coefficients, Momentum, ScratchBuffers, StepPlan
from dcfpca.rpca.method import FloatArray, WorkArray

SUM_ROWS = 256  # of a product that needs a place of its own: it stays in cache


@dataclass(frozen=True, slots=True, eq=False)
class FactoredData:
    """Y of a block in factored form: ω ψ(R) and what it has of L, left · shrunkᵀ."""

    influences: WorkArray  # rows and columns rounded up
    left: WorkArray
    shrunk: WorkArray
    step: float

    def times(self, right: WorkArray) -> WorkArray:
        """Y · right."""
        padded = np.zeros((right.shape[1], self.influences.shape[1]), right.dtype)
        padded[:, : right.shape[0]] = self.step * right.T
        product: WorkArray = np.empty((self.influences.shape[0], right.shape[1]), right.dtype)
        active_loops().thin_product(self.influences, padded, product, (0,) * right.shape[1])
        product = product[: self.left.shape[0]]
        product += self.left @ (self.shrunk.T @ right)
        return product


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
            for first in range(0, self.tensor.shape[0], SUM_ROWS):
                rows = slice(first, first + SUM_ROWS)
                self.tensor[rows] = Y[rows] @ right if self.empty else self.tensor[rows] + Y[rows] @ right
        self.empty = False

    def close(self, momentum: Momentum | None) -> None:
        """After the last block: take β L_before out of the update, a few rows at a time."""
        if momentum is None:
            return
        before = momentum.factor * momentum.before_sum
        for first in range(0, self.tensor.shape[0], SUM_ROWS):
            rows = slice(first, first + SUM_ROWS)
            self.tensor[rows] -= momentum.U_before[rows].astype(before.dtype, copy=False) @ before


def count_residuals(M: WorkArray, L: WorkArray, plan: StepPlan, sums: StepSums) -> None:
    """Add the sampled rows' residuals M − L to the histogram, to Σ ψ² and to the count of those that ψ mostly keeps."""
    squared, kept = active_loops().count(
        M, L, plan.sample, plan.threshold, plan.a, plan.noise, HISTOGRAM_LOWEST, sums.histogram
    )
    sums.influence += squared
    sums.kept += kept
    sums.sampled += float(plan.sample.size * L.shape[1])


def block_step(
    M: FloatArray,
    start: WorkArray,
    fit: Coefficients,
    plan: StepPlan,
    sums: StepSums,
    scratch: ScratchBuffers,
    momentum: Momentum | None,
    first: int,
) -> None:
    """The local passes on one block, from these coefficients of the entering directions; fills `fit`, adds to
    the sums.

    `first` is the block's first column within the site.
    """
    Y = _passes(M, start, fit, plan, scratch, sums, 1.0 if momentum is None else 1.0 + momentum.factor)
    if momentum is None:
        sums.add_product(Y, (fit.V / plan.scales).astype(plan.U.dtype, copy=False))
        return
    before = momentum.before[first : first + fit.V.shape[0]]
    fit.V[:] -= before @ (momentum.factor * momentum.turn)
    right = (fit.V / plan.scales).astype(plan.U.dtype, copy=False)
    sums.add_product(Y, right)
    momentum.before_sum[:] += before.T @ right


def fitting_passes(M: FloatArray, start: WorkArray, fit: Coefficients, plan: StepPlan, scratch: ScratchBuffers) -> None:
    """The local passes on one block for the coefficients alone: fills `fit`."""
    _passes(M, start, fit, plan, scratch, None, 1.0)


def first_coefficients(M: FloatArray, plan: StepPlan, scratch: ScratchBuffers) -> WorkArray:
    """The coefficients, in the entering directions, that one pass from L = 0 over these columns gives."""
    data, Y = scratch.place(M)
    if plan.is_thin(M):
        nothing: WorkArray = np.zeros((M.shape[1], plan.entering.weights.size), plan.U.dtype)
        gained = _thin_pass(data, nothing, plan, scratch.influences(2, M.shape[1]))[:, plan.entering.places]
        return plan.relaxation * gained
    Y.fill(0.0)
    active_loops().sweep(data, Y, plan.threshold, plan.a, 0.0, plan.relaxation)
    start: WorkArray = Y.T @ plan.entering.U
    return start


def _passes(
    M: FloatArray,
    start: WorkArray,
    fit: Coefficients,
    plan: StepPlan,
    scratch: ScratchBuffers,
    sums: StepSums | None,
    keep: float,
) -> WorkArray | FactoredData:
    """Fills `fit`, counts residuals into `sums`, and returns Y, which is in the scratch buffers.

    Of L, Y has `keep` times as much as the last pass worked with.
    """
    shrunk, (data, L) = start * plan.entering.weights, scratch.place(M)
    if not plan.is_thin(M):
        return _product_passes(data, L, shrunk, fit, plan, sums, keep)
    # Directions that do not enter are carried along, because every number of directions needs a loop of its own.
    places, weights = plan.entering.places, plan.entering.weights
    for _ in range(plan.passes - 1 if weights.size else 0):
        gained = _thin_pass(data, shrunk, plan, scratch.influences(2, M.shape[1]))
        shrunk = (shrunk + plan.relaxation * gained[:, places]) * weights
    if sums is not None:
        few = replace(plan, sample=np.arange(plan.sample.size))
        count_residuals(read_only(M[plan.sample]), plan.entering.U[plan.sample] @ shrunk.T, few, sums)
    influences = scratch.influences(2 if sums is None else -(-M.shape[0] // ROWS) * ROWS, M.shape[1])
    influences[M.shape[0] :] = 0.0
    gained = _thin_pass(data, shrunk, plan, influences)
    fit.L[:, places] = shrunk
    fit.V[:] = keep * fit.L + plan.step * gained
    return FactoredData(influences, plan.entering.U, keep * shrunk, plan.step)


def _thin_pass(M: WorkArray, shrunk: WorkArray, plan: StepPlan, influences: WorkArray) -> WorkArray:
    """ψ(R)ᵀ U, and the influences of as many rows as the buffer holds."""
    width = plan.U.shape[1]
    every: WorkArray = np.zeros((shrunk.shape[0], width), plan.U.dtype)
    every[:, plan.entering.places] = shrunk
    gained = np.empty_like(every)
    active_loops().influence_pass(M, plan.U, every, plan.threshold, plan.a, influences, gained, (0,) * width)
    return gained


def _product_passes(
    data: WorkArray,
    L: WorkArray,
    shrunk: WorkArray,
    fit: Coefficients,
    plan: StepPlan,
    sums: StepSums | None,
    keep: float,
) -> WorkArray:
    """The passes as matrix products, with L formed in the scratch buffer."""
    loops, entering = active_loops(), plan.entering
    # As one row where the data has no gaps between rows: vector code loses time at the end of every row.
    rows = (data.reshape(1, -1), L.reshape(1, -1)) if data.shape == L.shape else (data, L)
    for _ in range(plan.passes - 1):
        np.matmul(entering.U, shrunk.T, out=L)
        loops.sweep(*rows, plan.threshold, plan.a, 0.0, plan.relaxation)
        shrunk = (shrunk + L.T @ entering.U) * entering.weights
    if shrunk.any():
        np.matmul(entering.U, shrunk.T, out=L)
    else:
        L.fill(0.0)
    if sums is not None:
        count_residuals(data, L, plan, sums)
    loops.sweep(*rows, plan.threshold, plan.a, keep, plan.step)
    fit.V[:] = L.T @ plan.U
    fit.L[:, entering.places] = shrunk
    return L

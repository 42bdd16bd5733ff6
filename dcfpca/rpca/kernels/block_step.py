"""The site's arithmetic on one block of columns. Pure; every engine calls `block_step` in a loop and adds up.

With U orthonormal and the coefficients V = YᵀU of the cleaned data Y, a local pass is

    R = M − U D Vᵀ,   Y = U D Vᵀ + ω ψ(R),   V ← YᵀU

so neither Y nor S is state: V (n_i × p) is all a site carries from pass to pass and round to round, and a block of
M is read once per round however many passes are made on it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dcfpca.rpca.kernels.array_types import WorkArray
from dcfpca.rpca.kernels.fused_low_rank_pass import FactoredData, fit_only, last_pass, thin_passes
from dcfpca.rpca.kernels.loop_selection import active_loops
from dcfpca.rpca.kernels.scratch_buffers import ScratchBuffers, read_only
from dcfpca.rpca.kernels.step_parameters import Coefficients, Momentum, StepPlan
from dcfpca.rpca.kernels.step_sums import StepSums, count_residuals
from dcfpca.rpca.method import FloatArray


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
    keep = 1.0 if momentum is None else 1.0 + momentum.factor
    Y = local_passes(M, start, fit, plan, scratch, sums, keep)
    if momentum is not None:
        momentum.take_from_coefficients(first, fit.V)
    right = (fit.V / plan.scales).astype(plan.U.dtype, copy=False)
    sums.add_product(Y, right)
    if momentum is not None:
        momentum.add_block(first, right)


def local_passes(
    M: FloatArray,
    start: WorkArray,
    fit: Coefficients,
    plan: StepPlan,
    scratch: ScratchBuffers,
    sums: StepSums,
    keep: float = 1.0,
) -> WorkArray | FactoredData:
    """The local passes on one block: fills `fit`, counts residuals, and returns Y, which is in the scratch buffers.

    Of L, Y has `keep` times as much as the last pass worked with.
    """
    shrunk, (data, L) = start * plan.entering.weights, scratch.place(M)
    if plan.uses_thin_passes(M):
        shrunk = thin_passes(data, shrunk, plan, scratch.L)
        few = replace(plan, sample=np.arange(plan.sample.size))
        count_residuals(read_only(M[plan.sample]), plan.entering.U[plan.sample] @ shrunk.T, few, sums)
        return last_pass(data, shrunk, fit, plan, scratch.L, keep)
    return _product_passes(data, L, shrunk, fit, plan, sums, keep)


def fitting_passes(M: FloatArray, start: WorkArray, fit: Coefficients, plan: StepPlan, scratch: ScratchBuffers) -> None:
    """The local passes on one block for the coefficients alone: fills `fit`."""
    shrunk, (data, L) = start * plan.entering.weights, scratch.place(M)
    if plan.uses_thin_passes(M):
        fit_only(data, thin_passes(data, shrunk, plan, scratch.L), fit, plan, scratch.L)
    else:
        _product_passes(data, L, shrunk, fit, plan, None)


def _product_passes(
    data: WorkArray,
    L: WorkArray,
    shrunk: WorkArray,
    fit: Coefficients,
    plan: StepPlan,
    sums: StepSums | None,
    keep: float = 1.0,
) -> WorkArray:
    """The passes as matrix products, with L formed in the scratch buffer."""
    loops, entering = active_loops(), plan.entering
    for _ in range(plan.passes - 1):
        np.matmul(entering.U, shrunk.T, out=L)
        loops.sweep(*_long_rows(data, L), plan.threshold, plan.a, 0.0, plan.relaxation)
        shrunk = (shrunk + L.T @ entering.U) * entering.weights
    if shrunk.any():
        np.matmul(entering.U, shrunk.T, out=L)
    else:
        L.fill(0.0)
    if sums is not None:
        count_residuals(data, L, plan, sums)
    loops.sweep(*_long_rows(data, L), plan.threshold, plan.a, keep, plan.step)
    fit.V[:] = L.T @ plan.U
    fit.L[:, entering.places] = shrunk
    return L


def _long_rows(data: WorkArray, L: WorkArray) -> tuple[WorkArray, WorkArray]:
    """Both as one row where the data has no gaps between rows: vector code loses time at the end of every row."""
    return (data.reshape(1, -1), L.reshape(1, -1)) if data.shape == L.shape else (data, L)

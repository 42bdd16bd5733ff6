"""What sites send in closing rounds, in units that make everything of order one, and how the sums are read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.method import FloatArray, Layout, Stage, TensorMessage
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.refinement.column_fit import weights_of
from dcfpca.rpca.refinement.noise_scale import residual_median
from dcfpca.rpca.refinement.null import DISTANCE_BINS
from dcfpca.rpca.refinement.rank_selection import ranks_tried
from dcfpca.rpca.refinement.row_step import RoundSums
from dcfpca.rpca.refinement.size_histogram import MARGINAL_BINS, RESIDUAL_BINS, count_sizes

NULL_COUNTS = ("columns", "far_entries", "entries", "odd_columns")
ODD_SHARE = 0.5  # a column with more of its entries beyond the shoulder of the noise is not explained
AT_MEDIAN = 1e-9  # of the spread: values that are the median but for rounding all count as not above it
FAR = 2.0  # an entry of L further than so many reaches from its feature's median is out of range


def update_layout(rows: int, width: int, stage: Stage) -> Layout:
    """What every site sends in a closing round of this stage."""
    match stage:
        case Stage.REFINE:
            upper = tuple(f"gram_{j}" for j in range(width * (width + 1) // 2))
            total = tuple(f"total_{j}" for j in range(width))
            tensor = width + 2 + RESIDUAL_BINS.count + 3 * MARGINAL_BINS.count
            return Layout(rows, tensor, ("columns", "objective", *total, *upper))
        case Stage.VALIDATE:
            return Layout(0, 0, tuple(f"error_{j}" for j in range(2 + 3 * len(ranks_tried(width)))))
        case _:
            distance = tuple(f"distance_{j}" for j in range(DISTANCE_BINS.count))
            return Layout(rows, RESIDUAL_BINS.count, (*NULL_COUNTS, *distance))


def _units(plan: ClosingPlan) -> FloatArray:
    """The deviation of each direction's coefficients, never zero."""
    largest = float(plan.variance.max(initial=0.0))
    return np.asarray(np.sqrt(np.maximum(plan.variance, max(1e-12 * largest, np.finfo(np.float64).tiny))))


def refinement_update(plan: ClosingPlan, M: FloatArray, V: FloatArray, objective: float) -> TensorMessage:
    """The sums of a refinement round over these columns."""
    model, n, units, width = plan.model, plan.columns, _units(plan), plan.U.shape[1]
    R = M - model.low_rank(V)
    W = weights_of(R, model.noise)
    pull = np.where(np.isnan(R), 0.0, R) * W / model.noise[:, None]
    scaled = np.zeros((M.shape[1], width))
    scaled[:, : plan.rank] = V / units[: plan.rank]
    off = M - plan.median[:, None]
    above = off > AT_MEDIAN * plan.spread[:, None]
    counts = [
        count_sizes(np.abs(R), model.noise, RESIDUAL_BINS),
        count_sizes(np.where(AT_MEDIAN * model.noise[:, None] < R, R, np.nan), model.noise, MARGINAL_BINS),
        count_sizes(np.where(above, off, np.nan), plan.spread, MARGINAL_BINS),
        count_sizes(np.where(above, np.nan, np.abs(off)), plan.spread, MARGINAL_BINS),
    ]
    tensor = np.column_stack([pull @ scaled, pull.sum(axis=1), W.sum(axis=1), *counts])
    gram = (scaled.T @ scaled)[np.triu_indices(width)]
    unit = float(np.sum(model.noise**2))
    scalars = np.concatenate([[M.shape[1], objective / max(unit, 1e-300)], scaled.sum(axis=0), gram])
    return TensorMessage(tensor / n, scalars / n)


@dataclass(frozen=True, slots=True, eq=False)
class RefinementTotals:
    """The sums of a refinement round, read."""

    rows: RoundSums
    residuals: FloatArray  # counts of |R| per feature
    above: FloatArray  # counts of x − median where positive
    below: FloatArray  # counts of median − x elsewhere
    objective: float

    @staticmethod
    def of(plan: ClosingPlan, sums: TensorMessage) -> RefinementTotals:
        """From the sum of `refinement_update` over sites, in the data's units."""
        n, units, width, rank = plan.columns, _units(plan), plan.U.shape[1], plan.rank
        ends = np.cumsum([width, 1, 1, RESIDUAL_BINS.count, MARGINAL_BINS.count, MARGINAL_BINS.count])
        pull, shift, weight, residuals, positive, above, below = np.split(sums.tensor * n, ends, axis=1)
        columns, objective = sums.scalars[:2] * n
        gram = np.zeros((width, width))
        gram[np.triu_indices(width)] = sums.scalars[2 + width :] * n
        gram = (gram + np.triu(gram, 1).T)[:rank, :rank] * np.outer(units[:rank], units[:rank])
        total = sums.scalars[2 : 2 + rank] * n * units[:rank]
        noise = plan.noise[:, None]
        # Counts are whole numbers, whatever the order of the sum: medians and scales must not depend on rounding.
        residuals, positive, above, below = (np.rint(counts) for counts in (residuals, positive, above, below))
        rows = RoundSums(
            pull=pull[:, :rank] * noise * units[:rank],
            shift=shift[:, 0] * plan.noise,
            middle=residual_median(residuals, positive, plan.noise),
            weight=weight[:, 0],
            gram=gram,
            total=total,
            columns=float(columns),
        )
        return RefinementTotals(rows, residuals, above, below, float(objective))


def null_update(plan: ClosingPlan, M: FloatArray, L: FloatArray, distance: FloatArray) -> TensorMessage:
    """The sums of the null round over these columns."""
    sizes = np.abs(M - L)
    counts = count_sizes(sizes, plan.noise, RESIDUAL_BINS)
    seen = np.count_nonzero(~np.isnan(M), axis=0)
    beyond = np.count_nonzero(sizes > 5.0 * plan.noise[:, None], axis=0)
    odd = np.count_nonzero(beyond > ODD_SHARE * np.maximum(seen, 1))
    far = np.count_nonzero(np.abs(L - plan.median[:, None]) > FAR * plan.reach[:, None]) / M.shape[0]
    head = [M.shape[1], far, float(seen.sum()) / M.shape[0], odd]
    distances = count_sizes(distance[None, :], np.array([float(max(plan.rank, 1))]), DISTANCE_BINS)[0]
    return TensorMessage(counts / plan.columns, np.concatenate([head, distances]) / plan.columns)

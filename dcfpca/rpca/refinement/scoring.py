"""Scores of columns against the null of a run: those of the run itself, and new ones. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.closing_plan import ClosingPlan
from dcfpca.rpca.refinement.column_fit import fit_columns
from dcfpca.rpca.refinement.null import column_p_value, distance_p_value, two_sided


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Entries (m × n) and columns (n) held against the null."""

    z: FloatArray  # residual over the feature's null scale; NaN where unobserved
    entry_p_value: FloatArray
    flagged: NDArray[np.bool_]
    distance: FloatArray  # T²
    largest_z: FloatArray
    p_value: FloatArray  # of the column


@dataclass(frozen=True, slots=True, eq=False)
class TransformedColumns:
    """New columns under a finished run: their coefficients, their normal part, and their scores."""

    V: FloatArray
    L: FloatArray
    scored: Scored


def squared_distance(V: FloatArray, variance: FloatArray) -> FloatArray:
    """T² of columns with these coefficients: their squares in units of the pooled second moments."""
    return np.asarray(np.sum(V**2 / np.maximum(variance, np.finfo(np.float64).tiny), axis=1))


def score_columns(plan: ClosingPlan, M: FloatArray, L: FloatArray, V: FloatArray) -> Scored:
    """Hold columns, with the normal part L and coefficients V, against the null of the plan."""
    z = (M - L) / np.maximum(plan.null_scale, np.finfo(np.float64).tiny)[:, None]
    distance = squared_distance(V, plan.variance[: plan.rank])
    within = distance_p_value(distance, plan.rank, plan.distance_scale)
    both = np.minimum(2.0 * np.minimum(column_p_value(z), within), 1.0)
    sizes = np.where(np.isnan(z), 0.0, np.abs(z))
    return Scored(z, two_sided(z), sizes > plan.cut, distance, sizes.max(axis=0, initial=0.0), both)


def transform_columns(plan: ClosingPlan, M: FloatArray) -> TransformedColumns:
    """Fit new columns (NaN: unobserved) robustly in the subspace, and score them against the run's null."""
    model = plan.model
    V = fit_columns(model, M, None)
    L = model.low_rank(V)
    return TransformedColumns(V, L, score_columns(plan, M, L, V))

"""Scores of columns against the null of a run: those of the run itself, and new ones. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.closing_plan import ClosingPlan, FitEnding
from dcfpca.rpca.refinement.column_fit import fit_columns
from dcfpca.rpca.refinement.null import column_p_value, distance_p_value, two_sided
from dcfpca.rpca.robust_projection import project

SMALLEST_P = 1e-290


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


def squared_distance(plan: ClosingPlan, V: FloatArray) -> FloatArray:
    """T² of columns with these coefficients: their squares in units of the pooled second moments.

    A fit that keeps its own factors (`gradient`) has no such moments, and every column the distance 0.
    """
    if plan.ending is FitEnding.KEPT:
        return np.zeros(V.shape[0])
    variance = np.maximum(plan.variance[: plan.rank], np.finfo(np.float64).tiny)
    return np.asarray(np.sum(V[:, : plan.rank] ** 2 / variance, axis=1))


def score_columns(plan: ClosingPlan, M: FloatArray, L: FloatArray, V: FloatArray) -> Scored:
    """Hold columns, with the normal part L and coefficients V, against the null of the plan."""
    z = (M - L) / np.maximum(plan.null_scale, np.finfo(np.float64).tiny)[:, None]
    distance = squared_distance(plan, V)
    within = distance_p_value(distance, plan.rank, plan.distance_scale)
    both = np.minimum(2.0 * np.minimum(column_p_value(z), within), 1.0)
    sizes = np.where(np.isnan(z), 0.0, np.abs(z))
    flagged = (sizes > plan.cut) & plan.has_null
    return Scored(z, two_sided(z), flagged, distance, sizes.max(axis=0, initial=0.0), both)


def transform_columns(plan: ClosingPlan, M: FloatArray) -> TransformedColumns:
    """Fit new columns (NaN: unobserved) robustly in the subspace, and score them against the run's null."""
    model = plan.model
    if plan.ending is FitEnding.REFINED:
        V = fit_columns(model, M, None)
        L = model.low_rank(V)
    else:
        Q = np.linalg.qr(model.U)[0]
        L = Q @ project(Q, M).coefficients.T
        V = L.T @ model.U
    return TransformedColumns(V, L, score_columns(plan, M, L, V))


def log_p_value(scored: Scored, plan: ClosingPlan) -> FloatArray:
    """The logarithm of the columns' p-values, which goes on falling where a p-value is zero in doubles."""
    tail = -0.5 * np.maximum(scored.largest_z**2, scored.distance / plan.distance_scale)
    return np.where(scored.p_value > SMALLEST_P, np.log(np.maximum(scored.p_value, SMALLEST_P)), tail)

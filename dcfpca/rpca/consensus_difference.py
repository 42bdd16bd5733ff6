"""How far two consensuses of one round are apart: what the aggregator announced, and what a site computed again.

Machines round differently, and singular vectors are determined only up to sign and, where values coincide, up to a
rotation. So directions are compared by their weighted projector U diag(σ) Uᵀ and not entry by entry; everything else
by relative differences. What is discrete must be the same.
"""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.feature_count import COUNT_ROUNDS, FeatureCountMethod
from dcfpca.rpca.method import FloatArray, Method, Stage, TensorMessage
from dcfpca.rpca.private.method import PrivateSubspaceMethod
from dcfpca.rpca.private.plan import PrivatePlan
from dcfpca.rpca.refinement.closing_plan import FEATURE_COLUMNS, ClosingPlan
from dcfpca.rpca.refinement.method import StagedMethod
from dcfpca.rpca.scaling import SCALING_ROUNDS, ScaledMethod, split_broadcast
from dcfpca.rpca.subspace.method import SubspaceMethod
from dcfpca.rpca.subspace.round_plan import RoundPlan

TOLERANCE = 1e-6
"""Above the rounding of any machine: the projector is compared through squares, which have half of the digits."""

APART = float("inf")


def difference(method: Method, round: int, one: TensorMessage, other: TensorMessage, stage: Stage = Stage.FIT) -> float:
    """The largest relative difference between two broadcasts of this round; infinite if something discrete differs."""
    if one.tensor.shape != other.tensor.shape or one.scalars.shape != other.scalars.shape:
        return APART
    if not (_same_gaps(one.tensor, other.tensor) and _same_gaps(one.scalars, other.scalars)):
        return APART
    if isinstance(method, FeatureCountMethod):
        return difference(method.inner, round - COUNT_ROUNDS, one, other, stage)
    if isinstance(method, ScaledMethod):
        if round < SCALING_ROUNDS:
            return _worst(_relative(one.tensor, other.tensor), _relative(one.scalars, other.scalars))
        (inside, *scaling), (inside_other, *scaling_other) = (
            split_broadcast(told, method.rows) for told in (one, other)
        )
        apart = _relative(np.concatenate(scaling), np.concatenate(scaling_other))
        return _worst(apart, difference(method.inner, round - SCALING_ROUNDS, inside, inside_other, stage))
    if isinstance(method, StagedMethod):
        if stage is Stage.FIT:
            return difference(method.inner, round, one, other)
        return _between_closing_plans(ClosingPlan.of(one), ClosingPlan.of(other))
    if isinstance(method, SubspaceMethod) and round > 0:
        return _between_plans(RoundPlan.of(one), RoundPlan.of(other))
    if isinstance(method, PrivateSubspaceMethod) and round > 0:
        return _between_private_plans(PrivatePlan.of(one), PrivatePlan.of(other))
    return _worst(_relative(one.tensor, other.tensor), _relative(one.scalars, other.scalars))


def _between_private_plans(one: PrivatePlan, other: PrivatePlan) -> float:
    """Directions by their projectors, those of L by themselves and each with its singular value: noise leaves some of
    the others equally strong."""
    if (one.rank, one.clip) != (other.rank, other.clip):
        return APART
    figures = [np.array([plan.columns, plan.error]) for plan in (one, other)]
    return _worst(
        *(_relative(mine[None], theirs[None]) for mine, theirs in zip(*figures, strict=True)),
        _relative(one.values, other.values),
        _relative(one.errors, other.errors),
        _between_projectors(one.U, np.ones(one.U.shape[1]), other.U, np.ones(other.U.shape[1])),
        _between_projectors(one.entering, np.ones(one.rank), other.entering, np.ones(other.rank)),
        _between_projectors(one.entering, one.values[: one.rank], other.entering, other.values[: other.rank]),
    )


def _between_plans(one: RoundPlan, other: RoundPlan) -> float:
    if (one.single, one.narrow, one.start) != (other.single, other.narrow, other.start):
        return APART
    names = ("threshold", "noise", "relaxation", "step", "momentum", "columns")
    pairs = [(getattr(one, name), getattr(other, name)) for name in names]
    return _worst(
        *(_relative(np.array([mine]), np.array([theirs])) for mine, theirs in pairs),
        _relative(one.weights, other.weights),
        _relative(one.values, other.values),
        _between_projectors(one.U, one.values, other.U, other.values),
        _between_projectors(one.U, one.weights * one.values, other.U, other.weights * other.values),
    )


def _between_closing_plans(one: ClosingPlan, other: ClosingPlan) -> float:
    discrete = ("stage", "ending", "hiding", "fresh", "rank")
    if any(getattr(one, name) != getattr(other, name) for name in discrete):
        return APART
    figures = [np.array([plan.columns, plan.cut, plan.distance_scale]) for plan in (one, other)]
    return _worst(
        *(_relative(mine[None], theirs[None]) for mine, theirs in zip(*figures, strict=True)),
        *(_relative(getattr(one, name), getattr(other, name)) for name in FEATURE_COLUMNS),
        _relative(one.variance, other.variance),
        _relative(one.verdict, other.verdict),
        _relative(one.fit.scalars, other.fit.scalars),
        _between_projectors(one.U, one.variance, other.U, other.variance),
    )


def _between_projectors(one: FloatArray, ones: FloatArray, other: FloatArray, others: FloatArray) -> float:
    """‖U diag(σ) Uᵀ − U′ diag(σ′) U′ᵀ‖ relative to the first, from p × p products."""
    first, second = one * np.sqrt(ones), other * np.sqrt(others)
    squares = [float(np.sum((a.T @ b) ** 2)) for a, b in ((first, first), (second, second), (first, second))]
    size = max(squares[0], np.finfo(float).tiny)
    return float(np.sqrt(max(squares[0] + squares[1] - 2.0 * squares[2], 0.0) / size))


def _same_gaps(one: FloatArray, other: FloatArray) -> bool:
    """Whether the entries that are no finite numbers are the same ones in both."""
    gaps = ~(np.isfinite(one) & np.isfinite(other))
    return np.array_equal(one[gaps], other[gaps], equal_nan=True)


def _worst(*apart: float) -> float:
    """The largest; infinite if one is NaN, as of numbers whose squares overflow. Python's `max` would leave it out."""
    worst = float(np.max(apart))
    return APART if np.isnan(worst) else worst


def _relative(one: FloatArray, other: FloatArray) -> float:
    known = np.isfinite(one)  # all others are the same
    one, other = one[known], other[known]
    size = max(float(np.abs(one).max(initial=0.0)), float(np.abs(other).max(initial=0.0)))
    return float(np.abs(one - other).max(initial=0.0)) / size if size > 0.0 else 0.0

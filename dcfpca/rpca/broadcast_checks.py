"""Whether a consensus can be true, judged by a site before it computes: a pure check of what the aggregator announces.

A site cannot know the other sites' data, but every honest consensus keeps rules that follow from the method alone. A
broadcast that breaks one of them would make the update say something other than what the site agreed to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.errors import BadMessage
from dcfpca.rpca.feature_count import COUNT_ROUNDS, FeatureCountMethod
from dcfpca.rpca.federated_median import BINS, DIGITS
from dcfpca.rpca.gradient.method import GradientMethod
from dcfpca.rpca.gradient.settings import GradientPlan
from dcfpca.rpca.method import FloatArray, Method, Stage, TensorMessage
from dcfpca.rpca.orthonormality import is_orthonormal
from dcfpca.rpca.private.method import PrivateSubspaceMethod
from dcfpca.rpca.private.plan import PrivatePlan
from dcfpca.rpca.refinement.closing_plan import ClosingPlan, FitEnding
from dcfpca.rpca.refinement.method import StagedMethod
from dcfpca.rpca.scaling import SCALING_ROUNDS, ScaledMethod, counting_state, split_broadcast
from dcfpca.rpca.subspace.method import SubspaceMethod
from dcfpca.rpca.subspace.round_plan import CoefficientStart, RoundPlan
from dcfpca.rpca.subspace.schedule import first_level

UNIT_LENGTH = 1e-6
"""How far from one the length of a direction that rests may be."""
SAME = 1e-6
"""Relative difference within which figures that follow from each other agree."""
SAME_COUNT = {64: 1e-6, 32: 1e-2}
"""The same for the number of columns, a sum of shares in fixed point of so many bits."""
LARGEST = 1e150
"""Entries of data are below 1e140, and singular values are not much larger."""
JUMP = 1e3
"""Scales, thresholds and factors grow by no more than this, times √rows, from one round to the next."""


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """The broadcast of the last round that the site answered."""

    round: int
    broadcast: TensorMessage
    stage: Stage = Stage.FIT


def implausible(
    method: Method, round: int, told: TensorMessage, before: Seen | None, precision: int, stage: Stage = Stage.FIT
) -> str:
    """Why this broadcast cannot be true where sums have so many bits; empty when nothing speaks against it.

    Nothing is judged by the site's own data: whoever may announce again after a refusal would find out about it.
    """
    if not (np.isfinite(told.tensor).all() and np.isfinite(told.scalars).all()):
        return "the consensus has numbers that are not finite"
    with np.errstate(over="ignore"):  # the square of a huge number is infinite, and beyond every limit
        if reason := _implausible_for(method, round, told, before, precision, stage):
            return reason
    if max(np.abs(told.tensor).max(initial=0.0), np.abs(told.scalars).max(initial=0.0)) > LARGEST:
        return "the consensus has numbers that cannot be squared, which no data gives"
    return ""


def _implausible_for(
    method: Method, round: int, told: TensorMessage, before: Seen | None, precision: int, stage: Stage
) -> str:
    if isinstance(method, FeatureCountMethod):
        return _implausible_after_count(method, round, told, before, precision, stage)
    if isinstance(method, ScaledMethod):
        return _implausible_scaled(method, round, told, before, precision, stage)
    if isinstance(method, StagedMethod):
        if stage is not Stage.FIT:
            return _implausible_closing(told, before, precision, stage)
        fit = before if before is not None and before.stage is Stage.FIT else None
        return implausible(method.inner, round, told, fit, precision)
    if round == 0:
        return ""
    earlier = before if before is not None and before.round > 0 else None
    if isinstance(method, SubspaceMethod):
        return _implausible_plan(method, told, earlier, precision)
    if isinstance(method, PrivateSubspaceMethod):
        return _implausible_private(method, told, earlier)
    if isinstance(method, GradientMethod):
        return _implausible_factor(method, told, earlier, precision)
    return ""


def _implausible_private(method: PrivateSubspaceMethod, told: TensorMessage, before: Seen | None) -> str:
    """Directions must be orthonormal, since the sensitivity of the answer rests on it, and the clip stays.

    The count is noisy, and may be anything.
    """
    try:
        plan = PrivatePlan.of(told)
        earlier = None if before is None else PrivatePlan.of(before.broadcast)
    except (BadMessage, ValueError) as error:
        return str(error)
    if method.clip is not None and plan.clip != method.clip:
        return "the clip is not that of the spec"
    if earlier is not None and (plan.clip, plan.columns) != (earlier.clip, earlier.columns):
        return "the clip or the noisy count is not that of the round before"
    return "a singular value is negative" if (plan.values < 0.0).any() else ""


def _implausible_closing(told: TensorMessage, before: Seen | None, precision: int, stage: Stage) -> str:
    """A plan of the closing rounds: orthonormal directions, positive scales, and the columns of the round before."""
    try:
        plan = ClosingPlan.of(told)
    except ValueError as error:
        return f"the plan of a closing round cannot be read: {error}"
    if plan.stage is not stage or not 0 <= plan.rank <= plan.U.shape[1]:
        return "the plan of a closing round is of another stage than was announced, or of no possible rank"
    if plan.ending is FitEnding.REFINED and not is_orthonormal(plan.subspace.U):
        return "the directions of U that enter L are not orthonormal"
    if not all((scale > 0.0).all() for scale in (plan.noise, plan.spread, plan.null_scale)):
        return "a feature's noise or spread is not positive"
    if (plan.variance < 0.0).any():
        return "a variance is negative"
    earlier = ClosingPlan.of(before.broadcast) if before is not None and before.stage is not Stage.FIT else None
    return _implausible_columns(plan.columns, earlier.columns if earlier else None, precision)


def _implausible_after_count(
    method: FeatureCountMethod, round: int, told: TensorMessage, before: Seen | None, precision: int, stage: Stage
) -> str:
    if round < COUNT_ROUNDS:
        return ""
    earlier = None
    if before is not None and before.round >= COUNT_ROUNDS:
        earlier = Seen(before.round - COUNT_ROUNDS, before.broadcast, before.stage)
    return implausible(method.inner, round - COUNT_ROUNDS, told, earlier, precision, stage)


def _implausible_scaled(
    method: ScaledMethod, round: int, told: TensorMessage, before: Seen | None, precision: int, stage: Stage
) -> str:
    if round < SCALING_ROUNDS:
        return _implausible_digits(method.rows, round, told, before)
    inside, centre, scale = split_broadcast(told, method.rows)
    if not (scale > 0.0).all():
        return "a feature's scale is not positive"
    inner_before = None
    if before is not None and before.round >= SCALING_ROUNDS:
        earlier, centre_before, scale_before = split_broadcast(before.broadcast, method.rows)
        if not (np.array_equal(centre, centre_before) and np.array_equal(scale, scale_before)):
            return "the features' centres or scales are not those of the round before"
        inner_before = Seen(before.round - SCALING_ROUNDS, earlier, before.stage)
    return implausible(method.inner, round - SCALING_ROUNDS, inside, inner_before, precision, stage)


def _implausible_digits(rows: int, round: int, told: TensorMessage, before: Seen | None) -> str:
    """The digits of a median only ever gain one, and the centre is settled once."""
    digits, centre = counting_state(told, rows)
    if not (np.array_equal(digits, np.rint(digits)) and ((digits >= 0) & (digits < BINS ** (round % DIGITS))).all()):
        return "the digits of a median are not whole numbers of the round's length"
    if before is None or before.round != round - 1 or round in (0, DIGITS):
        return ""
    digits_before, centre_before = counting_state(before.broadcast, rows)
    if not np.array_equal(np.floor(digits / BINS), digits_before):
        return "the digits of a median do not go on from those of the round before"
    return "" if np.array_equal(centre, centre_before) else "the features' centres are not those of the round before"


def _implausible_plan(method: SubspaceMethod, told: TensorMessage, before: Seen | None, precision: int) -> str:
    try:
        plan = RoundPlan.of(told)
    except BadMessage as error:
        return str(error)
    earlier = None if before is None else RoundPlan.of(before.broadcast)
    reasons = (
        _implausible_directions(plan),
        _implausible_parameters(method, plan),
        _implausible_columns(plan.columns, earlier.columns if earlier else None, precision),
        _implausible_growth(method, plan, earlier) if earlier else "",
    )
    return next(filter(None, reasons), "")


def _implausible_directions(plan: RoundPlan) -> str:
    lengths = np.linalg.norm(plan.U, axis=0)
    if np.abs(lengths - 1.0).max(initial=0.0) > UNIT_LENGTH:
        return "the directions of U do not have length one"
    if not is_orthonormal(plan.U[:, plan.entering]):
        return "the directions of U that enter L are not orthonormal"
    if ((plan.weights < 0.0) | (plan.weights > 1.0 + SAME)).any():
        return "a direction's weight is not between zero and one"
    return "a singular value is negative" if (plan.values < 0.0).any() else ""


def _implausible_parameters(method: SubspaceMethod, plan: RoundPlan) -> str:
    settings = method.settings
    if not (plan.noise > 0.0 and plan.threshold > 0.0):
        return "the noise or the threshold is not positive"
    if plan.threshold < settings.noise_factor * plan.noise * (1.0 - SAME):
        return "the threshold is below what the announced noise allows"
    # Figures are kept on a grid of two per cent, so a relaxation may stand one step above its limit.
    most = settings.largest_relaxation * 1.04
    if not (0.0 < plan.relaxation <= most and 0.0 < plan.step <= most and 0.0 <= plan.momentum < 1.0):
        return "relaxation, step or momentum is outside its limits"
    return ""


def _implausible_columns(told: float, before: float | None, precision: int) -> str:
    apart = SAME_COUNT[precision]
    if told < 1.0 - apart:
        return "the announced number of columns is below one"
    if before is not None and abs(told - before) > apart * before:
        return "the number of columns is not that of the round before"
    return ""


def _implausible_growth(method: SubspaceMethod, plan: RoundPlan, before: RoundPlan) -> str:
    """Thresholds fall, or follow the noise; scales stay of the order that entries below the threshold can have."""
    most = JUMP * np.sqrt(method.rows)
    if plan.noise > most * before.noise and plan.noise > before.threshold:
        return "the noise is far above that of the round before"
    # A run begins anew after its first round, at a multiple of the noise that was measured in it.
    multiple = 2.0 * method.settings.noise_factor
    if plan.start is CoefficientStart.SWEPT:
        multiple = first_level(method.settings.adjusted_for_size(min(float(method.rows), plan.columns)))
    if plan.threshold > max(before.threshold, multiple * plan.noise) * (1.0 + SAME):
        return "the threshold rose though the noise did not"
    largest = max(_largest(before.values), before.threshold * np.sqrt(before.columns))
    return "a singular value is far above those of the round before" if _largest(plan.values) > most * largest else ""


def _implausible_factor(method: GradientMethod, told: TensorMessage, before: Seen | None, precision: int) -> str:
    plan = GradientPlan.of(told)
    if not (plan.lambda_ > 0.0 and plan.rho > 0.0 and plan.learning_rate > 0.0):
        return "a penalty or the learning rate is not positive"
    if before is None:
        return _implausible_columns(plan.columns, None, precision)
    earlier = GradientPlan.of(before.broadcast)
    fixed = (plan.lambda_, plan.rho, plan.learning_rate)
    if fixed != (earlier.lambda_, earlier.rho, earlier.learning_rate):
        return "a penalty or the learning rate is not that of the round before"
    growth = JUMP * np.sqrt(method.rows) * max(float(np.linalg.norm(before.broadcast.tensor)), 1e-300)
    if float(np.linalg.norm(told.tensor)) > growth:
        return "the factor U is far larger than in the round before"
    return _implausible_columns(plan.columns, earlier.columns, precision)


def _largest(values: FloatArray) -> float:
    return float(values.max(initial=0.0))

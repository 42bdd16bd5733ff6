"""The schedule of `subspace`, which follows the residuals that the sites measured and not the round number.

It has the thresholds of the next round; step and momentum of the heavy-ball method, from two shares that the aggregator
knows; and when the run is over: L at rest twice running, under thresholds that the noise and not λ governs, or with all
that is not an outlier explained to the tolerance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dcfpca.rpca.kernels.numpy_loops import HISTOGRAM_LOWEST, histogram_quantile
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.rpca.thresholds import NORMAL_MEDIAN

HYSTERESIS = 0.02  # changes of a measured figure by less than about this share are taken for jitter
SINGLE_RANGE = 1e12  # scales whose squares and outliers float32 can hold
# Narrower products are no faster in float32, and float32 costs agreement: data that no low rank fits exactly converges
# slowly, and carries the rounding of its early rounds, which depends on the split, to the end.
SINGLE_WIDTH = 16

# λ after round 1, in deviations of the entries: FIRST_LEVEL times `fall_lead`, which is larger for small matrices. And
# at least LEAST_LEVEL where their sizes, by the 60 % over the 20 % quantile, spread as those of normal numbers do (3.3,
# and 4.1 with 30 % outliers), RAISED times that where they spread as a product of two normal numbers does (5.6: few
# strong directions, whose large entries are no outliers).
FIRST_LEVEL = 1.8
LEAST_LEVEL = 2.4
NORMAL_SPREAD, HEAVY_SPREAD = 3.7, 4.6
RAISED = 3.0

# A warm run's λ begins at this multiple of what the earlier subspace leaves unexplained, and not below this share of
# the opening scale: lower, columns that the projection got wrong would be locked.
WARM_NOISE = 4.0
WARM_LEAST = 0.3


# Near the solution a pass multiplies the error by 1 − ω A, where A = P_T P_Ω P_T: onto the tangent space T of the
# matrices of this rank, onto the entries Ω whose residuals have influence (ψ ≠ 0), and back. For a random Ω the
# spectrum of A is known (free probability), and with it the best step and momentum. For any other Ω they are safe as
# long as ω < 2 (1 + β), which holds here.
RESTART = 2.0  # L moved this many times as far as in the round before: its direction is no longer the one to follow
ROUNDING = 1e-13  # movements below this are rounding, which must not decide anything: it differs between two runs
SMALLEST_EIGENVALUE = 0.05  # of A; a pattern that is not random may have any
MORE_MOMENTUM = 1.2  # times the momentum of a random pattern
MOST_MOMENTUM = 0.5

QUIET_ROUNDS = 2  # one round at rest may be chance
PULL_LEFT = 10.0  # the deviation of what is not explained, outliers apart, in tolerances
FAST = 0.25  # figures that fall to this share of themselves or less in a round converge fast
LAST_LEVEL = 30.0  # deviations of what is left, and tolerances: what is larger is an outlier


@dataclass(frozen=True, slots=True)
class Schedule:
    """The thresholds of the next round. All floats, so that it can be stored as one array."""

    level: float  # λ
    entry: float  # the λ that singular values are compared with; constant while L is at rest
    noise: float  # σ̄, from the residuals of the round before
    influence: float  # the deviation of ω ψ(R), from the same residuals
    relaxation: float  # ω
    step: float  # ω of the last pass of a round, with momentum
    momentum: float  # β
    unit: float  # the scale of the data, from the opening exchange
    columns: float  # n, from the opening exchange
    single: float  # 1.0 while rounds are worked in single precision; once 0.0 it stays so

    def threshold(self, settings: SubspaceSettings) -> float:
        """θ: entries whose residual is larger begin to count as outliers."""
        return max(self.level, settings.noise_factor * self.noise, settings.floor * self.unit)


def opening_schedule(scale: float, columns: float, width: int, settings: SubspaceSettings) -> Schedule:
    """The first thresholds. Data that is zero throughout has no scale; any will do."""
    unit = scale if scale > 0.0 else 1.0
    level = settings.opening_factor * unit
    single = settings.single < 1.0 and width >= SINGLE_WIDTH and 1.0 / SINGLE_RANGE < unit < SINGLE_RANGE
    return Schedule(level, level, unit, unit, 1.0, 1.0, 0.0, unit, columns, float(single))


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of the residuals, from the sums of a round."""

    noise: float  # 1.4826 · median|R|
    influence: float  # the deviation of ω ψ(R)
    influential: float  # the share of entries whose residual has influence on L

    @staticmethod
    def of(schedule: Schedule, scalars: FloatArray) -> Measured:
        """Read the sums of counts of a round that was worked under this schedule."""
        influence, kept, sampled = scalars[1:4]
        if sampled <= 0.0:
            return Measured(0.0, 0.0, 1.0)
        noise = NORMAL_MEDIAN * histogram_quantile(0.5, scalars[4:], schedule.noise, HISTOGRAM_LOWEST)
        deviation = schedule.relaxation * schedule.noise * np.sqrt(max(influence, 0.0) / sampled)
        return Measured(noise, float(deviation), kept / sampled)


def warm_schedule(schedule: Schedule, measured: Measured, settings: SubspaceSettings) -> Schedule:
    """The first thresholds of a warm run, from the residuals of the data in the earlier subspace."""
    noise = max(measured.noise, settings.floor * schedule.unit)
    level = max(WARM_NOISE * noise, WARM_LEAST * schedule.unit)
    return replace(schedule, level=level, entry=level, noise=noise, influence=noise)


def first_schedule(schedule: Schedule, scalars: FloatArray, settings: SubspaceSettings) -> Schedule:
    """The thresholds after round 1, in which L was 0, so that the residuals counted were the entries themselves.

    Counts by powers of two show what the opening exchange, which counts by powers of sixteen, could not: the scale, and
    how heavy the tails are. A direction must not wait for the λ that is raised for such tails.
    """
    after, sizes = next_schedule(schedule, Measured.of(schedule, scalars), 1.0, False, settings), scalars[4:]
    low, high = (histogram_quantile(share, sizes, schedule.noise, HISTOGRAM_LOWEST) for share in (0.2, 0.6))
    if low <= 0.0:
        return after
    raised = float(np.interp(high / low, (NORMAL_SPREAD, HEAVY_SPREAD), (1.0, RAISED)))
    entry = FIRST_LEVEL * settings.fall_lead * after.noise
    return replace(after, level=first_level(settings, raised) * after.noise, entry=entry)


def first_level(settings: SubspaceSettings, raised: float = RAISED) -> float:
    """λ after round 1, in deviations of the entries; by default the most it can be with these adjusted settings."""
    return max(raised * LEAST_LEVEL, FIRST_LEVEL * settings.fall_lead)


def next_schedule(
    schedule: Schedule, measured: Measured, change: float, at_rest: bool, settings: SubspaceSettings
) -> Schedule:
    """The thresholds after a round, by what was measured in it. Step and momentum are plain; see `accelerated`.

    `change` is how far L moved in the round before, relatively, and `at_rest` whether by less than the tolerance. While
    L is at rest a low threshold can do no harm, and λ falls as fast as it may. The λ that singular values are compared
    with waits then, because values that are only rounding must not enter L.
    """
    least = settings.floor * schedule.unit / settings.noise_factor
    noise = _with_hysteresis(max(measured.noise, least), schedule.noise)
    fall = _fall(schedule, measured, noise, settings)
    relaxation = _with_hysteresis(
        1.0 / max(measured.influential, 1.0 / settings.largest_relaxation), schedule.relaxation
    )
    return replace(
        schedule,
        level=schedule.level * (settings.fall_fastest if at_rest else fall),
        entry=schedule.entry * (1.0 if at_rest else fall),
        noise=noise,
        influence=_with_hysteresis(measured.influence, schedule.influence),
        relaxation=relaxation,
        step=relaxation,
        momentum=0.0,
        single=schedule.single * float(min(change, noise / schedule.unit) > settings.single),
    )


def _fall(schedule: Schedule, measured: Measured, noise: float, settings: SubspaceSettings) -> float:
    """The factor of λ: it falls a little slower than the residual fell.

    The median residual shows how most entries converge, the influence how the slowest do; the slower of the two sets
    the pace. While λ is far above the noise, only outliers lie between them, and λ falls by `fall_gap` at least.
    """
    pace = max(noise / schedule.noise, measured.influence / schedule.influence if schedule.influence > 0.0 else 0.0)
    slowest = settings.fall_gap if schedule.level > settings.gap * noise else settings.fall_slowest
    return min(max(settings.fall_lead * pace, settings.fall_fastest), slowest)


def _with_hysteresis(new: float, old: float) -> float:
    """The figure on a grid of 2 %, or the old one if that is a neighbour.

    Counts jitter, and jitter would keep L from resting. With a grid, runs that differ only by rounding, such as the
    same data split differently, settle on the same thresholds.
    """
    if new <= 0.0:
        return new
    gridded = (1.0 + HYSTERESIS) ** round(math.log(new) / math.log1p(HYSTERESIS))
    return old if abs(gridded - old) <= 1.5 * HYSTERESIS * old else gridded


def accelerated(
    schedule: Schedule, rank: int, rows: int, change: float, change_before: float, settings: SubspaceSettings
) -> Schedule:
    """The schedule with step and momentum, once L moves little and no further than shortly before."""
    if change > settings.momentum_below or change > RESTART * max(change_before, ROUNDING):
        return schedule
    # The dimension of the manifold of matrices of this rank, as a share of all dimensions.
    tangent = rank * (rows + schedule.columns - rank) / (rows * max(schedule.columns, 1.0))
    largest, smallest = spectrum_ends(tangent, idle=max(1.0 - 1.0 / schedule.relaxation, 0.0))
    step = 4.0 / (largest + smallest) ** 2
    momentum = MORE_MOMENTUM * ((largest - smallest) / (largest + smallest)) ** 2
    return replace(schedule, step=min(step, settings.largest_relaxation), momentum=min(momentum, MOST_MOMENTUM))


def spectrum_ends(tangent: float, idle: float) -> tuple[float, float]:
    """Square roots of the largest and smallest eigenvalue of A on T.

    The share `idle` of the entries, at random, has no influence, and T has the share `tangent` of all dimensions.
    """
    one, other = math.sqrt(idle * (1.0 - tangent)), math.sqrt(tangent * (1.0 - idle))
    largest = math.sqrt(max(1.0 - (one - other) ** 2, 0.0))
    if idle + tangent >= 1.0:
        return largest, SMALLEST_EIGENVALUE**0.5
    return largest, math.sqrt(max(1.0 - (one + other) ** 2, SMALLEST_EIGENVALUE))


def is_final(schedule: Schedule, old: Schedule, settings: SubspaceSettings, tolerance: float) -> bool:
    """Whether L at rest under this schedule is at rest for good."""
    if explained(schedule, tolerance):
        return True
    # Where θ came down though the noise did not, what is at rest under the old one may move under this one.
    fell = schedule.noise < old.noise / (1.0 + HYSTERESIS) ** 2
    lowered = schedule.threshold(settings) < old.threshold(settings) / (1.0 + HYSTERESIS) ** 2
    return noise_governs(schedule, settings) and (fell or not lowered)


def next_round_explains(change: float, before: float, schedule: Schedule, old: Schedule, tolerance: float) -> bool:
    """Whether a next round would find L at rest and the data explained, as its figures converge fast.

    L moved by `change` in this round and by `before` in the last. Its error is what all rounds to come would move it
    by: at such a rate no more than twice what the next one would. Single precision cannot show this.
    """
    if old.single or min(before, old.noise, old.influence) <= 0.0:
        return False
    rate = max(change / before, schedule.noise / old.noise, schedule.influence / old.influence)
    ahead = replace(schedule, noise=rate * schedule.noise, influence=rate * schedule.influence)
    return rate <= FAST and 2.0 * rate * change < tolerance and explained(ahead, tolerance)


def explained(schedule: Schedule, tolerance: float) -> bool:
    """Whether the data is explained to the tolerance: half of the entries, and nearly all that are no outliers."""
    largest = tolerance * schedule.unit
    return schedule.noise <= largest and schedule.influence <= PULL_LEFT * largest


def final_thresholds(schedule: Schedule, settings: SubspaceSettings, tolerance: float) -> Schedule:
    """The schedule that the result of a converged run is made by: λ need not have come down to the noise by then.

    L is known only to the tolerance: a smaller residual says something about L, not about the data.
    """
    if noise_governs(schedule, settings):
        return schedule
    left = max(schedule.noise, schedule.influence, tolerance * schedule.unit)
    return replace(schedule, level=min(schedule.level, LAST_LEVEL * left))


def noise_governs(schedule: Schedule, settings: SubspaceSettings) -> bool:
    """Whether the noise and not λ sets the threshold, so that a subspace at rest means the run is over."""
    return schedule.level <= 2.0 * max(settings.noise_factor * schedule.noise, settings.floor * schedule.unit)

"""The threshold schedule: it follows the residuals that the sites measured, not the round number."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dcfpca.rpca.kernels.step_sums import HISTOGRAM_LOWEST, histogram_median, histogram_quantile
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.rpca.thresholds import NORMAL_MEDIAN

HYSTERESIS = 0.02  # changes of a measured figure by less than about this share are taken for jitter
SINGLE_RANGE = 1e12  # scales whose squares and outliers float32 can hold
# Narrower products gain no time in float32. What it costs is agreement: data that no low rank fits exactly converges
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
class Movement:
    """The movement of L in the round before."""

    change: float  # relatively
    at_rest: bool  # by less than the tolerance


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
        noise = NORMAL_MEDIAN * histogram_median(scalars[4:], schedule.noise, HISTOGRAM_LOWEST)
        deviation = schedule.relaxation * schedule.noise * np.sqrt(max(influence, 0.0) / sampled)
        return Measured(noise, float(deviation), kept / sampled)


def warm_schedule(schedule: Schedule, measured: Measured, settings: SubspaceSettings) -> Schedule:
    """The first thresholds of a warm run, from the residuals of the data in the earlier subspace."""
    noise = max(measured.noise, settings.floor * schedule.unit)
    level = max(WARM_NOISE * noise, WARM_LEAST * schedule.unit)
    return replace(schedule, level=level, entry=level, noise=noise, influence=noise)


def first_schedule(schedule: Schedule, scalars: FloatArray, settings: SubspaceSettings) -> Schedule:
    """The thresholds after round 1, in which L was 0, so that the residuals counted were the entries themselves.

    By powers of two they tell what the opening exchange, which counts by powers of sixteen, could not: the scale, and
    how heavy the tails are. A direction must not wait for the λ that is raised for them.
    """
    movement = Movement(change=1.0, at_rest=False)
    after, sizes = next_schedule(schedule, Measured.of(schedule, scalars), movement, settings), scalars[4:]
    low, high = (histogram_quantile(share, sizes, schedule.noise, HISTOGRAM_LOWEST) for share in (0.2, 0.6))
    if low <= 0.0:
        return after
    raised = float(np.interp(high / low, (NORMAL_SPREAD, HEAVY_SPREAD), (1.0, RAISED)))
    entry = FIRST_LEVEL * settings.fall_lead * after.noise
    return replace(after, level=first_level(settings, raised) * after.noise, entry=entry)


def first_level(settings: SubspaceSettings, raised: float = RAISED) -> float:
    """λ after round 1, in deviations of the entries; by default the most it can be with these adjusted settings."""
    return max(raised * LEAST_LEVEL, FIRST_LEVEL * settings.fall_lead)


def next_schedule(schedule: Schedule, measured: Measured, movement: Movement, settings: SubspaceSettings) -> Schedule:
    """The thresholds after a round, by what was measured in it. Step and momentum are plain; see `heavy_ball`.

    While L is at rest a low threshold can do no harm, and λ falls as fast as it may. The λ that singular values are
    compared with waits then, because values that are only rounding must not enter L.
    """
    least = settings.floor * schedule.unit / settings.noise_factor
    noise = _with_hysteresis(max(measured.noise, least), schedule.noise)
    fall = _fall(schedule, measured, noise, settings)
    relaxation = _with_hysteresis(
        1.0 / max(measured.influential, 1.0 / settings.largest_relaxation), schedule.relaxation
    )
    return replace(
        schedule,
        level=schedule.level * (settings.fall_fastest if movement.at_rest else fall),
        entry=schedule.entry * (1.0 if movement.at_rest else fall),
        noise=noise,
        influence=_with_hysteresis(measured.influence, schedule.influence),
        relaxation=relaxation,
        step=relaxation,
        momentum=0.0,
        single=schedule.single * float(min(movement.change, noise / schedule.unit) > settings.single),
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
    """The figure on a grid of 2 %, and the old one while it is next to it.

    Counts jitter, and jitter would keep L from resting. A grid, because then runs that differ by rounding alone, as
    the same data dealt out differently do, settle on the same thresholds.
    """
    if new <= 0.0:
        return new
    gridded = (1.0 + HYSTERESIS) ** round(math.log(new) / math.log1p(HYSTERESIS))
    return old if abs(gridded - old) <= 1.5 * HYSTERESIS * old else gridded

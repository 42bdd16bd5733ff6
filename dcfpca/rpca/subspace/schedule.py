"""How the threshold falls: tied to the residual that the sites measured, not to the round number."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dcfpca.rpca.subspace.settings import SubspaceSettings

STICKY = 0.02
SINGLE_RANGE = 1e12  # scales whose squares and outliers float32 can hold
# Narrower products gain no time in float32. What it costs is agreement: data that no low rank fits exactly converges
# slowly, and carries the rounding of its early rounds, which depends on the split, to the end.
SINGLE_WIDTH = 16


# Heavy ball: the figures of a random pattern, a little on the side of more momentum, and never far from them.
RESTART = 2.0  # L moved this many times as far as in the round before: the way it went is not the way to go
SMALLEST_PULL = 0.05
MORE_MOMENTUM = 1.2
MOST_MOMENTUM = 0.5

# A warm run's λ begins at this multiple of what the earlier subspace leaves unexplained, and not below this share of
# the opening scale: lower, columns that the projection got wrong would be locked.
WARM_NOISE = 4.0
WARM_LEAST = 0.3


@dataclass(frozen=True, slots=True)
class Movement:
    """How far L moved, relatively, in the last round and in the one before."""

    now: float
    before: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """Where the thresholds of the next round stand. All floats, so that it can be stored as one array."""

    level: float  # λ
    entry: float  # the λ that singular values are held against; waits while L is at rest
    noise: float  # σ̄, from the residuals of the round before
    pull: float  # the deviation of ω ψ(R), from the same residuals
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
    """What the sums of a round say about the residuals."""

    noise: float  # 1.4826 · median|R|
    pull: float  # the deviation of ω ψ(R)
    pulling: float  # the share of entries that still pull


def warm_schedule(schedule: Schedule, measured: Measured, settings: SubspaceSettings) -> Schedule:
    """Where the thresholds of a warm run begin, once the data has been held against the earlier subspace."""
    noise = max(measured.noise, settings.floor * schedule.unit)
    level = max(WARM_NOISE * noise, WARM_LEAST * schedule.unit)
    return replace(schedule, level=level, entry=level, noise=noise, pull=noise)


def next_schedule(
    schedule: Schedule, measured: Measured, change: float, resting: bool, settings: SubspaceSettings
) -> Schedule:
    """Let λ fall a little slower than the residual fell, and step further where fewer entries pull.

    While L is at rest there is nothing to lose by a low threshold, and λ falls freely; singular values that are only
    rounding must not enter L for it.
    """
    least = settings.floor * schedule.unit / settings.noise_factor
    noise = _sticky(max(measured.noise, least), schedule.noise)
    # The median tells how most entries fare, the pull also how the laggards do: the slower of the two sets the pace.
    pace = max(noise / schedule.noise, measured.pull / schedule.pull if schedule.pull > 0.0 else 0.0)
    slowest = settings.fall_gap if schedule.level > settings.gap * noise else settings.fall_slowest
    fall = min(max(settings.fall_lead * pace, settings.fall_fastest), slowest)
    level = schedule.level * (settings.fall_resting if resting else fall)
    entry = schedule.entry * (1.0 if resting else fall)
    relaxation = _sticky(1.0 / max(measured.pulling, 1.0 / settings.largest_relaxation), schedule.relaxation)
    pull = _sticky(measured.pull, schedule.pull)
    single = schedule.single * float(min(change, noise / schedule.unit) > settings.single)
    unit, columns = schedule.unit, schedule.columns
    return Schedule(level, entry, noise, pull, relaxation, relaxation, 0.0, unit, columns, single)


def accelerated(schedule: Schedule, freedom: float, movement: Movement, settings: SubspaceSettings) -> Schedule:
    """With the step and momentum of the heavy-ball method that suit the share of entries that do not pull.

    Near the solution a pass multiplies the error by 1 − ω A, where A = P_T P_Ω P_T: onto the tangent space T of the
    matrices of this rank (`freedom` is its share of all dimensions), onto the entries Ω that pull, and back. For an Ω
    at random the spectrum of A is known (free probability), and with it the best step and momentum. For any other Ω
    they are safe as long as ω < 2 (1 + β), which they are.
    """
    if movement.now > settings.momentum_below or movement.now > RESTART * movement.before:
        return schedule
    idle = 1.0 - 1.0 / schedule.relaxation
    one, other = math.sqrt(idle * (1.0 - freedom)), math.sqrt(freedom * (1.0 - idle))
    largest = math.sqrt(max(1.0 - (one - other) ** 2, 0.0))
    smallest = math.sqrt(max(1.0 - (one + other) ** 2, SMALLEST_PULL)) if idle + freedom < 1.0 else SMALLEST_PULL**0.5
    step = 4.0 / (largest + smallest) ** 2
    momentum = MORE_MOMENTUM * ((largest - smallest) / (largest + smallest)) ** 2
    return replace(schedule, step=min(step, settings.largest_relaxation), momentum=min(momentum, MOST_MOMENTUM))


def settled(schedule: Schedule, settings: SubspaceSettings) -> bool:
    """Whether the noise and not λ governs, so that a subspace at rest means the run is over."""
    return schedule.level <= 2.0 * max(settings.noise_factor * schedule.noise, settings.floor * schedule.unit)


def lowered(schedule: Schedule, old: Schedule, settings: SubspaceSettings) -> bool:
    """Whether θ came down though the noise did not: what rested under the old one may well move under this one."""
    same_noise = schedule.noise >= old.noise / (1.0 + STICKY) ** 2
    return same_noise and schedule.threshold(settings) < old.threshold(settings) / (1.0 + STICKY) ** 2


def _sticky(new: float, old: float) -> float:
    """The figure on a grid of 2 %, and the old one while it is next to it.

    Counts jitter, and jitter would keep L from resting. A grid, because then runs that differ by rounding alone, as
    the same data dealt out differently do, settle on the same thresholds.
    """
    if new <= 0.0:
        return new
    gridded = (1.0 + STICKY) ** round(math.log(new) / math.log1p(STICKY))
    return old if abs(gridded - old) <= 1.5 * STICKY * old else gridded

"""When a run of `subspace` is over: L at rest twice running, under thresholds that the noise and not λ governs, or with
all that is not an outlier explained to the tolerance."""

from __future__ import annotations

from dataclasses import replace

from dcfpca.rpca.subspace.schedule import HYSTERESIS, Schedule
from dcfpca.rpca.subspace.settings import SubspaceSettings

QUIET_ROUNDS = 2  # one round at rest may be chance
PULL_LEFT = 10.0  # the deviation of what is not explained, outliers apart, in tolerances
FAST = 0.25  # figures that fall to this share of themselves or less in a round converge fast
LAST_LEVEL = 30.0  # deviations of what is left, and tolerances: what is larger is an outlier


def quiet_rounds(
    before: int, at_rest: bool, schedule: Schedule, old: Schedule, settings: SubspaceSettings, tolerance: float
) -> int:
    """Rounds in a row, `before` of them before this one, in which L was at rest for good."""
    governed = noise_governs(schedule, settings) and not threshold_lowered(schedule, old, settings)
    return before + 1 if at_rest and (governed or explained(schedule, tolerance)) else 0


def next_round_explains(change: float, before: float, schedule: Schedule, old: Schedule, tolerance: float) -> bool:
    """Whether a next round would find L at rest and the data explained, as its figures converge fast.

    L moved by `change` in this round and by `before` in the last. Its error is what all rounds to come would move it
    by: at such a rate no more than twice what the next one would. Single precision cannot tell.
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

    L is known to the tolerance: a residual next to it tells of L and not of the data.
    """
    if noise_governs(schedule, settings):
        return schedule
    left = max(schedule.noise, schedule.influence, tolerance * schedule.unit)
    return replace(schedule, level=min(schedule.level, LAST_LEVEL * left))


def noise_governs(schedule: Schedule, settings: SubspaceSettings) -> bool:
    """Whether the noise and not λ sets the threshold, so that a subspace at rest means the run is over."""
    return schedule.level <= 2.0 * max(settings.noise_factor * schedule.noise, settings.floor * schedule.unit)


def threshold_lowered(schedule: Schedule, old: Schedule, settings: SubspaceSettings) -> bool:
    """Whether θ came down though the noise did not: what is at rest under the old one may move under this one."""
    same_noise = schedule.noise >= old.noise / (1.0 + HYSTERESIS) ** 2
    return same_noise and schedule.threshold(settings) < old.threshold(settings) / (1.0 + HYSTERESIS) ** 2

"""When a run of `subspace` is over: L at rest twice running, under thresholds that the noise and not λ governs."""

from __future__ import annotations

from dcfpca.rpca.subspace.schedule import HYSTERESIS, Schedule
from dcfpca.rpca.subspace.settings import SubspaceSettings

QUIET_ROUNDS = 2  # one round at rest may be chance


def quiet_rounds(before: int, at_rest: bool, schedule: Schedule, old: Schedule, settings: SubspaceSettings) -> int:
    """Rounds in a row, `before` of them before this one, in which L was at rest for good."""
    quiet = at_rest and noise_governs(schedule, settings) and not threshold_lowered(schedule, old, settings)
    return before + 1 if quiet else 0


def noise_governs(schedule: Schedule, settings: SubspaceSettings) -> bool:
    """Whether the noise and not λ sets the threshold, so that a subspace at rest means the run is over."""
    return schedule.level <= 2.0 * max(settings.noise_factor * schedule.noise, settings.floor * schedule.unit)


def threshold_lowered(schedule: Schedule, old: Schedule, settings: SubspaceSettings) -> bool:
    """Whether θ came down though the noise did not: what is at rest under the old one may move under this one."""
    same_noise = schedule.noise >= old.noise / (1.0 + HYSTERESIS) ** 2
    return same_noise and schedule.threshold(settings) < old.threshold(settings) / (1.0 + HYSTERESIS) ** 2

"""How the threshold falls: tied to the residual that the sites measured, not to the round number."""

from __future__ import annotations

from dataclasses import dataclass

from dcfpca.rpca.subspace_settings import SubspaceSettings


@dataclass(frozen=True, slots=True)
class Schedule:
    """Where the thresholds of the next round stand. All floats, so that it can be stored as one array."""

    level: float  # λ
    noise: float  # σ̄, from the residuals of the round before
    relaxation: float  # ω
    unit: float  # the scale of the data, from the opening exchange
    columns: float  # n, from the opening exchange

    def threshold(self, settings: SubspaceSettings) -> float:
        """θ: entries whose residual is larger begin to count as outliers."""
        return max(self.level, settings.noise_factor * self.noise, settings.floor * self.unit)


def opening_schedule(scale: float, columns: float, settings: SubspaceSettings) -> Schedule:
    """The first thresholds. Data that is zero throughout has no scale; any will do."""
    unit = scale if scale > 0.0 else 1.0
    return Schedule(settings.opening_factor * unit, unit, 1.0, unit, columns)


def next_schedule(
    schedule: Schedule, noise: float, kept: float, sampled: float, resting: bool, settings: SubspaceSettings
) -> Schedule:
    """Let λ fall a little slower than the residual fell, and step further where fewer entries pull.

    While L is at rest there is nothing to lose by a low threshold, and λ falls freely.
    """
    noise = max(noise, settings.floor * schedule.unit / settings.noise_factor)
    ratio = settings.fall_lead * noise / schedule.noise
    fall = settings.fall_resting if resting else min(max(ratio, settings.fall_fastest), settings.fall_slowest)
    relaxation = min(sampled / kept, settings.largest_relaxation) if kept > 0.0 else 1.0
    return Schedule(schedule.level * fall, noise, relaxation, schedule.unit, schedule.columns)


def settled(schedule: Schedule, settings: SubspaceSettings) -> bool:
    """Whether the noise and not λ governs, so that a subspace at rest means the run is over."""
    return schedule.level <= 2.0 * max(settings.noise_factor * schedule.noise, settings.floor * schedule.unit)

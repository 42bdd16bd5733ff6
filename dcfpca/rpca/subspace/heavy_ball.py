"""Step and momentum of the heavy-ball method, from two shares that the aggregator knows.

Near the solution a pass multiplies the error by 1 − ω A, where A = P_T P_Ω P_T: onto the tangent space T of the
matrices of this rank, onto the entries Ω whose residuals have influence (ψ ≠ 0), and back. For a random Ω the
spectrum of A is known (free probability), and with it the best step and momentum. For any other Ω they are safe as
long as ω < 2 (1 + β), which holds here.
"""

from __future__ import annotations

import math
from dataclasses import replace

from dcfpca.rpca.subspace.schedule import Schedule
from dcfpca.rpca.subspace.settings import SubspaceSettings

RESTART = 2.0  # L moved this many times as far as in the round before: its direction is no longer the one to follow
ROUNDING = 1e-13  # movements below this are rounding, which must not decide anything: it differs between two runs
SMALLEST_EIGENVALUE = 0.05  # of A; a pattern that is not random may have any
MORE_MOMENTUM = 1.2  # times the momentum of a random pattern
MOST_MOMENTUM = 0.5


def accelerated(
    schedule: Schedule, tangent: float, change: float, change_before: float, settings: SubspaceSettings
) -> Schedule:
    """The schedule with step and momentum, once L moves little and not suddenly further than in the round before."""
    if change > settings.momentum_below or change > RESTART * max(change_before, ROUNDING):
        return schedule
    largest, smallest = spectrum_ends(tangent, idle=1.0 - 1.0 / schedule.relaxation)
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


def tangent_share(rank: int, rows: int, columns: float) -> float:
    """The dimension of the manifold of rows × columns matrices of this rank, as a share of all dimensions."""
    return rank * (rows + columns - rank) / (rows * max(columns, 1.0))

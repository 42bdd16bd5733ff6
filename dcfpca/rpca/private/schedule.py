"""The public schedule of a private run: how many rounds, how wide their tensors are, what each may spend, and the
expected error of the subspace, known before anything is spent.

Contributions are stated in units in which one column changes a sum by at most 1: a column's part of a tensor is
ỹ(ỹᵀU) with ‖ỹ‖ ≤ 1 and U orthonormal, whatever the width; so a wide first round costs nothing but bytes, and a random
start that is wide holds the subspace. The opening has a count and one bin of a histogram per column, hence √2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.private.pooling import sines_of_spikes

OPENING_SHARE = 0.05
"""Share of ρ for the opening: a count and a histogram of lengths need only a little."""
ROUNDING = 2.0**-10
"""Relative allowance for rounding, to floating point within a sum and to the grid; sites stay within it, see `grid`."""
WIDE, WIDE_PER_RANK = 50, 10
NARROW_PER_RANK = 2
"""With only the directions wanted, sin θ is the same where a gap follows them, and two to three times as large where
strengths fall off without one: the directions that the first round missed are then not found again."""
LENGTH_BINS = 256
"""Bins of column lengths, half an octave each, centred on one."""


@dataclass(frozen=True, slots=True)
class PrivateSchedule:
    """Round 0 is the opening, rounds 1 … `rounds` exchange tensors; together they spend `rho`."""

    rounds: int
    rho: float

    def rho_of(self, round: int) -> float:
        """What a round spends."""
        return OPENING_SHARE * self.rho if round == 0 else (1.0 - OPENING_SHARE) * self.rho / self.rounds

    def sensitivity(self, round: int) -> float:
        """How far one column moves the sum of a round in L2 norm, at most, rounding included."""
        return (math.sqrt(2.0) if round == 0 else 1.0) * (1.0 + ROUNDING)

    def deviation(self, round: int) -> float:
        """Deviation of the noise that the honest sites together add to every number of the round's sum."""
        return self.sensitivity(round) / math.sqrt(2.0 * self.rho_of(round))


def tensor_width(rows: int, rank: int, round: int) -> int:
    """Columns of the tensor of a round: wide while U is random, then the directions wanted and as many more."""
    wide = max(WIDE, WIDE_PER_RANK * rank) if round <= 1 else NARROW_PER_RANK * rank
    return min(rows, wide)


KEPT = 0.9
"""Mean squared length of a shortened column, when a quarter of them is shorter than the clip."""


def predicted_error(rows: int, rank: int, columns: float, schedule: PrivateSchedule, surplus: float = 1.0) -> float:
    """Expected sin θ of the weakest direction, if all `rank` directions are equally strong; 1 if noise hides them.

    `surplus` is the variance of all sites' noise over that of the honest ones, E/(E − c).
    """
    strength = max(columns, 0.0) * KEPT / rank
    spike, pooled, found = 0.0, 0, tensor_width(rows, rank, 1) / rows
    sine = 1.0
    for round in range(1, schedule.rounds + 1):
        if round == 2:  # the first sum is not pooled with those after it
            spike, pooled = 0.0, 0
        spike += (strength / schedule.deviation(round)) ** 2 / surplus * found
        pooled += tensor_width(rows, rank, round)
        sine = float(sines_of_spikes(np.array([spike]), rows, pooled)[0])
        found = max(1.0 - sine**2, tensor_width(rows, rank, round + 1) / rows)
    return sine


def expectation_text(epsilon: float, columns: float, error: float) -> str:
    """The error to expect of a run under ε, as the beginning of a sentence."""
    return f"at ε = {epsilon:g} with about {columns:.2g} columns expect sin θ ≈ {error:.2g}"


def prediction_text(epsilon: float, columns: float, error: float, rank: int) -> str:
    """One sentence for the operator, before anything is spent."""
    return (
        f"{expectation_text(epsilon, columns, error)} for {rank} directions of"
        " equal strength; weaker ones turn more, in inverse proportion to their share of the variance;"
        " the verdict of the run states the error of each"
    )

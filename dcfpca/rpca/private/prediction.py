"""The error of the subspace before a run: from the number of columns and the budget alone."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.private.pooling import sines_of_spikes
from dcfpca.rpca.private.schedule import PrivateSchedule, tensor_width

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
    """What a run under ε lets expect, as the beginning of a sentence."""
    return f"at ε = {epsilon:g} with about {columns:.2g} columns expect sin θ ≈ {error:.2g}"


def prediction_text(epsilon: float, columns: float, error: float, rank: int) -> str:
    """One sentence for the operator, before anything is spent."""
    return (
        f"{expectation_text(epsilon, columns, error)} for {rank} directions of"
        " equal strength; weaker ones turn more, in inverse proportion to their share of the variance;"
        " the verdict of the run states the error of each"
    )

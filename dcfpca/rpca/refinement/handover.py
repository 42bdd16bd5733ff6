"""When a fit is over because its data is not exactly low-rank plus sparse, though its rounds could go on."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dcfpca.rpca.method import FloatArray

EXACT_NOISE = 1e-6  # of the opening scale: a fit that ends with less noise explains the data
STALLED_NOISE = 1e-4  # of the opening scale: with less, a run that stands still may be about to find the exact answer
WINDOW = 6  # rounds over which the noise is watched


class Patience(NamedTuple):
    """From which round on the noise is watched, and to which share of itself it falls over the window on exact data."""

    rounds: int
    fall: float


FEW_ROWS_OR_COLUMNS = Patience(8, 0.5)  # thresholds fall slowly there, but nothing waits for them
MANY = Patience(12, 0.5)  # where outliers are many, a direction may wait this long to enter, and the noise with it
MANY_DIRECTIONS = Patience(18, 0.75)  # where also the rank is a large share of the smaller side, it takes its time
MANY_SIDE, MANY_SHARE = 100, 0.055


def patience(width: int, smaller_side: float) -> Patience:
    """How long a fit of this width is given to become exact."""
    if smaller_side < MANY_SIDE:
        return FEW_ROWS_OR_COLUMNS
    return MANY_DIRECTIONS if width >= MANY_SHARE * smaller_side else MANY


def stalled(noise: FloatArray, width: int, smaller_side: float) -> bool:
    """Whether the noise, the opening scale first and then that of every round, has come to stand above zero."""
    rounds, fall = patience(width, smaller_side)
    if noise.size <= rounds or not noise[-1] > STALLED_NOISE * noise[0]:
        return False
    return bool(noise[-1] > fall * noise[-1 - WINDOW])


def is_exact(noise: FloatArray) -> bool:
    """Whether what the fit left unexplained is rounding."""
    return bool(noise.size and np.isfinite(noise[-1]) and noise[-1] <= EXACT_NOISE * noise[0])

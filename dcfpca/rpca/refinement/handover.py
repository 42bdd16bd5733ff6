"""When a fit is over because its data is not exactly low-rank plus sparse, though its rounds could go on."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray

EXACT_NOISE = 1e-6  # of the opening scale: a fit that ends with less noise explains the data
STALLED_NOISE = 1e-4  # of the opening scale: with less, a run that stands still may be about to find the exact answer
WINDOW = 6  # rounds over which the noise is watched
NARROW_FALL, NARROW_ROUNDS = 0.35, 8  # exact data falls faster than this over the window, from this round on …
WIDE_FALL, WIDE_ROUNDS = 0.75, 18  # … but where the rank is a large share of the smaller side, it takes its time
WIDE_SHARE, WIDE_SIDE = 0.08, 100
FLAT, FLAT_ROUNDS = 0.02, 4  # noise that keeps within this for so many rounds is noise, however wide the run


def stalled(noise: FloatArray, width: int, smaller_side: float) -> bool:
    """Whether the noise, the opening scale first and then that of every round, has come to stand above zero."""
    wide = width >= WIDE_SHARE * smaller_side and smaller_side >= WIDE_SIDE
    fall, rounds = (WIDE_FALL, WIDE_ROUNDS) if wide else (NARROW_FALL, NARROW_ROUNDS)
    if noise.size <= NARROW_ROUNDS or not noise[-1] > STALLED_NOISE * noise[0]:
        return False
    if noise.size <= rounds:
        return _flat(noise)
    return bool(noise[-1] > fall * noise[-1 - WINDOW])


def _flat(noise: FloatArray) -> bool:
    last = noise[-1 - FLAT_ROUNDS :]
    return bool(last.max() <= (1.0 + FLAT) * last.min())


def is_exact(noise: FloatArray) -> bool:
    """Whether what the fit left unexplained is rounding."""
    return bool(noise.size and np.isfinite(noise[-1]) and noise[-1] <= EXACT_NOISE * noise[0])

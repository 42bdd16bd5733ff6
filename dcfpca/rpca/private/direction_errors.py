"""How far each direction of a private run may be off, from what everybody knows after the run. It spends nothing.

The deviation of the noise is public, and so are the noisy sums and the noisy count. `PooledSums.sines` says from them
how far noise and chance turn a direction of a given strength, and one that has little gap to those not kept. `COVERAGE`
makes of it a bound that holds for more than nine directions of ten in random problems with strengths spread over a
factor of five (`tests/unit/rpca/private/test_errors.py`). What cleaning changes is not in it.
"""

from __future__ import annotations

import math

import numpy as np

from dcfpca.rpca.method import FloatArray

COVERAGE = 2.0
UNCERTAIN = 0.1
"""Above this a direction is called uncertain."""


def stated_errors(sines: FloatArray) -> FloatArray:
    """Bounds on the sines between directions and the space they estimate."""
    return np.minimum(COVERAGE * sines, 1.0)


def direction_notes(errors: FloatArray) -> tuple[str, ...]:
    """One sentence on every direction, and on what they rest."""
    if not errors.size:
        return ()
    said = [
        f"direction {index} is uncertain: sin θ up to about {_rounded_up(error):.2g}"
        if error > UNCERTAIN
        else f"direction {index} is within sin θ = {_rounded_up(error):.2g}"
        for index, error in enumerate(errors, start=1)
    ]
    return (
        f"How far noise and chance turned them: {'; '.join(said)}. Such bounds hold for nine directions of ten. They"
        " follow from the level of the noise and the noisy singular values, which are public, and cost no privacy.",
    )


def _rounded_up(error: float) -> float:
    """Two digits that are no smaller."""
    if error <= 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(error)) - 1)
    return math.ceil(error / unit - 1e-9) * unit

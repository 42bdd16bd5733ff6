"""The units of the tensor that sites send: they make its entries of order one, and follow from the broadcast."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray

SMALLEST_SCALE = 1e-11  # of the largest: below lies rounding, which must not be amplified


def unit_and_scales(values: FloatArray) -> tuple[float, FloatArray]:
    """The unit of the tensor a site sends, about the largest singular value; and the divisors of V that give its
    columns unit length over all sites together."""
    largest = float(values.max())
    unit = largest if largest > 0.0 else 1.0
    return unit, np.maximum(values, SMALLEST_SCALE * unit)

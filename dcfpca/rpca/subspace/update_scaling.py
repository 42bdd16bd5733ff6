"""The units of the tensor that sites send: they make its entries of order one, and follow from the broadcast."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray

SMALLEST_SCALE = 1e-11  # of the largest: below lies rounding, which must not be amplified


def update_unit(values: FloatArray) -> float:
    """The unit of the tensor a site sends: about the largest singular value."""
    largest = float(values.max())
    return largest if largest > 0.0 else 1.0


def update_scales(values: FloatArray, unit: float) -> FloatArray:
    """The divisors of V that give its columns unit length over all sites together; `unit` is `update_unit`."""
    return np.maximum(values, SMALLEST_SCALE * unit)

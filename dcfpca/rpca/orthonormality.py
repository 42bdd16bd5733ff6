"""How exactly the directions of an announced U must be orthonormal."""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray

ORTHONORMAL = 1e-8
"""The largest entry of UᵀU − I over the directions that enter L."""


def is_orthonormal(U: FloatArray) -> bool:
    """Whether the columns of U, finite numbers, are orthonormal to ORTHONORMAL."""
    return not np.abs(U.T @ U - np.eye(U.shape[1])).max(initial=0.0) > ORTHONORMAL

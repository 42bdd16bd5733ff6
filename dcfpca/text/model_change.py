"""How the subspaces of two runs differ, in one sentence. Pure."""

from __future__ import annotations

import numpy as np
from scipy.linalg import subspace_angles

from dcfpca.errors import BadInput
from dcfpca.rpca.method import FloatArray


def subspace_change(earlier: FloatArray, later: FloatArray) -> str:
    """The angles between the subspaces that two U span; BadInput unless they have the same features."""
    if earlier.shape[0] != later.shape[0]:
        hint = "compare runs about the same features"
        raise BadInput(f"the runs have {earlier.shape[0]} and {later.shape[0]} features", hint)
    ranks = earlier.shape[1], later.shape[1]
    said = f"rank {ranks[0]}, then {ranks[1]}"
    if not min(ranks):
        return said
    angles = np.degrees(subspace_angles(earlier, later))
    each = ", ".join(f"{angle:.3g}°" for angle in angles)
    return f"{said}; angles between the subspaces: {each} (0°: the same direction, 90°: a new one)"

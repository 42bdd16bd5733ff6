"""The scalar shrinkage functions of the methods, and the residuals they leave.

Firm thresholding is the proximal operator of the minimax concave penalty: nothing below θ, everything above aθ,
a line between. ψ(r) = r − firm(r) is its influence function: the part of a residual that acts on L, all of a small
residual and none of a gross one.
"""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.method import FloatArray

NORMAL_MEDIAN = 1.4826  # the deviation of a normal variable over the median of its absolute value


def soft(x: FloatArray, threshold: float) -> FloatArray:
    """argmin over s of ½(s − x)² + θ|s|."""
    return x - np.clip(x, -threshold, threshold)


def firm(x: FloatArray, threshold: float, a: float) -> FloatArray:
    """argmin over s of ½(s − x)² + MCP(s; θ, a): 0 up to θ, x beyond aθ, linear between. Needs a > 1."""
    return x - influence(x, threshold, a)


def influence(x: FloatArray, threshold: float | FloatArray, a: float) -> FloatArray:
    """ψ(x) = x − firm(x): the part of a residual that is not an outlier. |ψ| ≤ θ, and 0 beyond aθ."""
    room = np.maximum((a * threshold - np.abs(x)) / (a - 1.0), 0.0)
    return np.clip(x, -room, room)

"""The result of a site block by block, and the figures of its certificate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from dcfpca.rpca.kernels.loop_selection import active_loops
from dcfpca.rpca.kernels.step_parameters import Coefficients, StepPlan
from dcfpca.rpca.method import FloatArray


@dataclass(slots=True)
class CertificateSums:
    """Sums over a site's blocks for its certificate."""

    entries: int = 0
    outliers: int = 0
    missing: int = 0
    influence: float = 0.0
    drift: float = 0.0
    size: float = 0.0

    def result(
        self, fit: Coefficients, plan: StepPlan, U: FloatArray, M: FloatArray
    ) -> tuple[FloatArray, scipy.sparse.csc_array, FloatArray]:
        """L, S and the coefficients of L of one block, added to the sums."""
        shrunk = fit.V * plan.entering.weights
        L = U @ shrunk.T
        ends, rows, values, missing, squares = active_loops().outliers(M, L, plan.threshold, plan.a)
        drift = shrunk - fit.L
        self.drift += float(np.vdot(drift, drift))
        self.size += float(np.vdot(shrunk, shrunk))
        self.entries += L.size
        self.outliers += rows.size
        self.missing += missing
        self.influence += squares
        return L, scipy.sparse.csc_array((values, rows, ends), shape=L.shape), shrunk

    def figures(self) -> dict[str, float]:
        """Shares of outliers and missing entries, RMS of the residual, and the change of V in the last pass."""
        observed = max(self.entries - self.missing, 1)
        return {
            "outlier_share": self.outliers / observed,
            "missing_share": self.missing / max(self.entries, 1),
            "residual_rms": float(np.sqrt(self.influence / observed)),
            "stationarity": float(np.sqrt(self.drift / self.size)) if self.size > 0.0 else 0.0,
        }

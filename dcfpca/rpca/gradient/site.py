"""A participant's side of `gradient`: K local iterations on U, with V_i and S_i staying here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.errors import BadMessage
from dcfpca.rpca.column_blocks import BLOCK_BYTES, blocks
from dcfpca.rpca.gradient.local_step import GradientSums, local_answer
from dcfpca.rpca.gradient.objective import LeftFactor, Penalties, clipped_residual
from dcfpca.rpca.gradient.settings import GradientPlan, GradientSettings
from dcfpca.rpca.gradient.singular_values import packed
from dcfpca.rpca.method import Columns, FloatArray, ResultBlock, TensorMessage
from dcfpca.rpca.thresholds import soft

RESULT_TOLERANCE = 1e-10  # the result is solved at least this well for V, whatever the rounds did


class GradientSite:
    """Holds V_i and the U it was last fitted to, which determine S_i = soft(M_i − U Vᵀ, λ) without storing it."""

    def __init__(self, columns: Columns, width: int, settings: GradientSettings) -> None:
        rows, count = columns.shape
        self._columns = columns
        self._settings = settings
        self._fitted_U = np.zeros((rows, width))
        self._V = np.zeros((count, width))
        self._started = False
        self._certificate: dict[str, float] = {}

    @property
    def columns(self) -> Columns:
        """The site's matrix."""
        return self._columns

    def answer(self, round: int, broadcast: TensorMessage) -> TensorMessage:
        """Round 0: column count and scale. Then: U after K local iterations, or a mark that it is no longer finite."""
        return local_answer(self, self._settings, round, broadcast)

    def fit(self, U: FloatArray, penalties: Penalties) -> GradientSums:
        """Fit V (and with it S) to this U; one pass over the data. LinAlgError where U is beyond all bounds."""
        # An overflow is not an error here but the news that the run diverges, which the answer passes on.
        with np.errstate(over="ignore", invalid="ignore"):
            slope = self._slope(LeftFactor.of(U, penalties))
            return GradientSums(slope, packed(self._V, 1.0))

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """V_i and the U it belongs to."""
        return {"V": self._V.copy(), "fitted_U": self._fitted_U.copy(), "started": np.array([self._started])}

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Restore an earlier `snapshot`."""
        V, fitted_U = snapshot["V"], snapshot["fitted_U"]
        if V.shape != self._V.shape or fitted_U.shape != self._fitted_U.shape:
            raise BadMessage("The saved state belongs to other data or to another rank.", "Start the run afresh.")
        self._V = np.array(V, dtype=np.float64)
        self._fitted_U = np.array(fitted_U, dtype=np.float64)
        self._started = bool(snapshot["started"][0])

    def finish(self, broadcast: TensorMessage) -> Iterator[ResultBlock]:
        """L_i = U Vᵀ with V solved for the final U, and S_i = soft(M_i − L_i, λ): each outlier short by λ."""
        plan = GradientPlan.of(broadcast)
        factor = LeftFactor.of(broadcast.tensor, plan.penalties)
        tolerance = min(self._settings.inner_tolerance, RESULT_TOLERANCE)
        worst, flagged, observed = 0.0, 0, 0
        for start, stop in blocks(self._columns):
            M = self._columns.read(start, stop)
            V, residual = factor.minimize(M, self._V[start:stop], tolerance)
            L = factor.U @ V.T
            S = soft(np.nan_to_num(M - L, nan=0.0), plan.penalties.lambda_)
            worst, flagged = max(worst, residual), flagged + int(np.count_nonzero(S))
            observed += M.size - int(np.isnan(M).sum())
            yield ResultBlock(start, L, scipy.sparse.csc_array(S), V)
        self._certificate = {"stationarity": worst, "outlier_share": flagged / max(observed, 1)}

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish`: the relative residual of ρV = clip(M − UVᵀ, ±λ)ᵀU, and the outlier share."""
        return dict(self._certificate)

    def _blocks(self) -> list[tuple[int, int]]:
        """Blocks a quarter as wide as U or wider: all of U is read for each."""
        rows, width = self._fitted_U.shape
        return blocks(self._columns, max(BLOCK_BYTES, rows * width * 2))

    def _slope(self, factor: LeftFactor) -> FloatArray:
        """(U Vᵀ + S − M) V, after fitting V (and with it S) to this U; one pass over the data."""
        slope = np.zeros_like(factor.U)
        turned = self._fitted_U.T @ factor.U  # once for all blocks: with many directions it costs more than a block
        for start, stop in self._blocks():
            M = self._columns.read(start, stop)
            V = self._fit(factor, M, self._V[start:stop], turned)
            slope -= clipped_residual(M, factor.U, V, factor.penalties.lambda_) @ V
            self._V[start:stop] = V
        self._fitted_U, self._started = factor.U, True
        return slope

    def _fit(self, factor: LeftFactor, M: FloatArray, V: FloatArray, turned: FloatArray) -> FloatArray:
        """The new V of a block: `inner_steps` alternations from the last S, or (0) to the tolerance.

        `turned` is the product of the transposed U that V was fitted to with the new U.
        """
        # The authors' start S = 0 is "nothing is clipped"; afterwards S is the one of the U that V was fitted to.
        lambda_ = factor.penalties.lambda_ if self._started else np.inf
        cleaned = clipped_residual(M, self._fitted_U, V, lambda_).T @ factor.U + V @ turned
        V = factor.solve(cleaned)
        if self._settings.inner_steps == 0:
            return factor.minimize(M, V, self._settings.inner_tolerance)[0]
        for _ in range(self._settings.inner_steps - 1):
            V = V - factor.solve(factor.gradient(M, V)[0])
        return V

"""A participant's side of `gradient`: K iterations on U from the slope over all its columns; V_i and S_i stay here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.errors import BadInput, BadMessage
from dcfpca.rpca.column_blocks import BLOCK_BYTES, blocks
from dcfpca.rpca.gradient.objective import LeftFactor, Penalties, clipped_residual, packed, unit_of_strengths
from dcfpca.rpca.gradient.settings import GradientPlan, GradientSettings
from dcfpca.rpca.method import Columns, FloatArray, ResultBlock, TensorMessage
from dcfpca.rpca.thresholds import NORMAL_MEDIAN, soft

SCALE_SAMPLE = 1 << 18  # entries that the site's scale is taken from


@dataclass(frozen=True, slots=True, eq=False)
class GradientSums:
    """The sums of one pass over the columns; both add up over columns."""

    slope: FloatArray  # (U Vᵀ + S − M) V, m × p
    gram: FloatArray  # the upper triangle of VᵀV, by rows


class LocalProblem(Protocol):
    """The interface of a site's columns to the local iterations, wherever the columns are stored."""

    @property
    def columns(self) -> Columns:
        """The site's matrix."""
        ...

    def fit(self, U: FloatArray, penalties: Penalties) -> GradientSums:
        """Fit V, and with it S, to this U and return the sums that follow; LinAlgError if U is too large to invert."""
        ...


def local_opening(columns: Columns) -> TensorMessage:
    """The update of the opening: n_i and n_i × scale_i."""
    count = float(columns.shape[1])
    return TensorMessage(np.zeros((0, 0)), np.array([count, count * scale_of(columns)]))


def local_answer(problem: LocalProblem, settings: GradientSettings, broadcast: TensorMessage) -> TensorMessage:
    """The update of a round of Algorithm 1: K local iterations from the broadcast U, then U_i, the share of columns, a
    mark of divergence, and the site's part of VᵀV, upper triangle by rows."""
    plan = GradientPlan.of(broadcast)
    # A share, not a count: all that is sent is of order one, so that a fixed-point sum keeps its digits.
    share = float(problem.columns.shape[1]) / plan.columns
    weight = share if settings.weights == "columns" else 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        found = _local_iterations(problem, settings, broadcast.tensor, plan, plan.step(settings.decay))
        gram = found[1] / (plan.columns * unit_of_strengths(broadcast.tensor)) if found else np.zeros(0)
    if found is None or not np.isfinite(gram).all():
        width = broadcast.tensor.shape[1]
        return TensorMessage(
            weight * broadcast.tensor, np.concatenate([[share, 1.0], np.zeros(width * (width + 1) // 2)])
        )
    return TensorMessage(weight * found[0], np.concatenate([[share, 0.0], gram]))


def _local_iterations(
    problem: LocalProblem, settings: GradientSettings, U: FloatArray, plan: GradientPlan, step: float
) -> tuple[FloatArray, FloatArray] | None:
    """U after K iterations, and VᵀV of the last; None when U is no longer finite."""
    share, gram = problem.columns.shape[1] / plan.columns, np.zeros(0)
    for _ in range(settings.local_iterations):
        try:
            sums = problem.fit(U, plan.penalties)
        except np.linalg.LinAlgError:
            return None
        U, gram = U - step * (sums.slope + share * plan.penalties.rho * U), sums.gram
        if not np.isfinite(U).all():
            return None
    return U, gram


def scale_of(columns: Columns) -> float:
    """A robust deviation of the observed entries, from a sample that is the same every time."""
    rows, count = columns.shape
    stride = max(1, rows * count // SCALE_SAMPLE) | 1  # odd, so that the sample does not run along a row of a block
    sizes = np.concatenate([_sizes(columns, start, stop)[::stride] for start, stop in blocks(columns)])
    middle = NORMAL_MEDIAN * float(np.median(sizes)) if sizes.size else 0.0
    if middle > 0.0 or not sizes.any():
        return middle
    return float(np.sqrt(np.mean(sizes[sizes > 0] ** 2)))  # more than half of the entries are zero


def _sizes(columns: Columns, start: int, stop: int) -> FloatArray:
    block = columns.read(start, stop)
    sizes = np.abs(block[~np.isnan(block)])
    if np.isinf(sizes).any():
        raise BadInput(
            f"The matrix holds an infinite value in columns {start} to {stop - 1}.",
            "Replace it, or mark the entry as missing (NaN).",
        )
    return sizes


RESULT_TOLERANCE = 1e-10  # the result is solved at least this well for V, whatever the rounds did


class GradientFit:
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

    def fit(self, U: FloatArray, penalties: Penalties) -> GradientSums:
        """Fit V (and with it S) to this U; one pass over the data. LinAlgError where U is beyond all bounds."""
        # An overflow is not an error here: it shows that the run diverges, and the answer says so.
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
            raise BadMessage("The saved state belongs to other data or to another rank.", "Start the run again.")
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

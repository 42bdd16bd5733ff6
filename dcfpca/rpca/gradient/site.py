"""A participant's side of `gradient`: K local iterations on U, with V_i and S_i staying here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcfpca.errors import BadInput, BadMessage
from dcfpca.rpca.columns import blocks
from dcfpca.rpca.gradient.objective import LeftFactor, Penalties, clipped_residual
from dcfpca.rpca.gradient.settings import GradientSettings, Plan
from dcfpca.rpca.gradient.singular_values import packed, unit_of_strengths
from dcfpca.rpca.method import Columns, FloatArray, Parcel, ResultBlock
from dcfpca.rpca.thresholds import soft

SCALE_SAMPLE = 1 << 18  # entries that the site's scale is taken from
RESULT_TOLERANCE = 1e-10  # the result is solved at least this well for V, whatever the rounds did


class GradientSite:
    """Holds V_i, and the U it was last fitted to: together they say S_i = soft(M_i − U Vᵀ, λ) without storing it."""

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

    def answer(self, round: int, broadcast: Parcel) -> Parcel:
        """Round 0: column count and scale. Then: U after K local iterations, or a mark that it is no longer finite."""
        return local_answer(self, self._settings, round, broadcast)

    def fit(self, U: FloatArray, penalties: Penalties) -> Fitted:
        """Fit V (and with it S) to this U; one pass over the data. LinAlgError where U is beyond all bounds."""
        # An overflow is not an error here but the news that the run diverges, which the answer passes on.
        with np.errstate(over="ignore", invalid="ignore"):
            slope = self._slope(LeftFactor.of(U, penalties))
            return Fitted(slope, packed(self._V, 1.0))

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """V_i and the U it belongs to."""
        return {"V": self._V.copy(), "fitted_U": self._fitted_U.copy(), "started": np.array([self._started])}

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Take up an earlier `snapshot`."""
        V, fitted_U = snapshot["V"], snapshot["fitted_U"]
        if V.shape != self._V.shape or fitted_U.shape != self._fitted_U.shape:
            raise BadMessage("The saved state belongs to other data or to another rank.", "Start the run afresh.")
        self._V = np.array(V, dtype=np.float64)
        self._fitted_U = np.array(fitted_U, dtype=np.float64)
        self._started = bool(snapshot["started"][0])

    def finish(self, broadcast: Parcel) -> Iterator[ResultBlock]:
        """L_i = U Vᵀ with V solved for the final U, and S_i = soft(M_i − L_i, λ): each outlier short by λ."""
        plan = Plan.of(broadcast.scalars)
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
            yield ResultBlock(start, L, sparse.csc_array(S), V)
        self._certificate = {"stationarity": worst, "outlier_share": flagged / max(observed, 1)}

    def certificate(self) -> dict[str, float]:
        """Of the last `finish`: the relative residual of ρV = clip(M − UVᵀ, ±λ)ᵀU, and the share of outliers."""
        return dict(self._certificate)

    def _slope(self, factor: LeftFactor) -> FloatArray:
        """(U Vᵀ + S − M) V, after fitting V (and with it S) to this U; one pass over the data."""
        slope = np.zeros_like(factor.U)
        for start, stop in blocks(self._columns):
            M = self._columns.read(start, stop)
            V = self._fit(factor, M, self._V[start:stop])
            slope -= clipped_residual(M, factor.U, V, factor.penalties.lambda_) @ V
            self._V[start:stop] = V
        self._fitted_U, self._started = factor.U, True
        return slope

    def _fit(self, factor: LeftFactor, M: FloatArray, V: FloatArray) -> FloatArray:
        """The new V of a block: `inner_steps` alternations from the last S, or (0) to the tolerance."""
        # The authors' start S = 0 is "nothing is clipped"; afterwards S is the one of the U that V was fitted to.
        lambda_ = factor.penalties.lambda_ if self._started else np.inf
        cleaned = clipped_residual(M, self._fitted_U, V, lambda_).T @ factor.U + V @ (self._fitted_U.T @ factor.U)
        V = factor.solve(cleaned)
        if self._settings.inner_steps == 0:
            return factor.minimize(M, V, self._settings.inner_tolerance)[0]
        for _ in range(self._settings.inner_steps - 1):
            V = V - factor.solve(factor.gradient(M, V)[0])
        return V


@dataclass(frozen=True, slots=True, eq=False)
class Fitted:
    """What a pass over the columns tells: the slope (U Vᵀ + S − M) V, and VᵀV as its upper triangle. Both add up."""

    slope: FloatArray
    gram: FloatArray


class GradientWork(Protocol):
    """What the local iterations need of the site's columns, wherever these are."""

    @property
    def columns(self) -> Columns:
        """The site's matrix."""
        ...

    def fit(self, U: FloatArray, penalties: Penalties) -> Fitted:
        """Fit V to this U."""
        ...


def local_answer(work: GradientWork, settings: GradientSettings, round: int, broadcast: Parcel) -> Parcel:
    """The local step of Algorithm 1."""
    count = float(work.columns.shape[1])
    if round == 0:
        return Parcel(np.zeros((0, 0)), np.array([count, count * scale_of(work.columns)]))
    plan = Plan.of(broadcast.scalars)
    # A share, not a count: all that is sent is of order one, so that a fixed-point sum keeps its digits.
    share = count / plan.columns
    weight = share if settings.weights == "columns" else 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        found = _local_iterations(work, settings, broadcast.tensor, plan, plan.step(round, settings.decay))
        gram = found[1] / (plan.columns * unit_of_strengths(broadcast.tensor)) if found else np.zeros(0)
    if found is None or not np.isfinite(gram).all():
        width = broadcast.tensor.shape[1]
        return Parcel(weight * broadcast.tensor, np.concatenate([[share, 1.0], np.zeros(width * (width + 1) // 2)]))
    return Parcel(weight * found[0], np.concatenate([[share, 0.0], gram]))


def _local_iterations(
    work: GradientWork, settings: GradientSettings, U: FloatArray, plan: Plan, step: float
) -> tuple[FloatArray, FloatArray] | None:
    """U after K iterations, and VᵀV of the last; None when U is no longer finite."""
    share, gram = work.columns.shape[1] / plan.columns, np.zeros(0)
    for _ in range(settings.local_iterations):
        try:
            fitted = work.fit(U, plan.penalties)
        except np.linalg.LinAlgError:
            return None
        U, gram = U - step * (fitted.slope + share * plan.penalties.rho * U), fitted.gram
        if not np.isfinite(U).all():
            return None
    return U, gram


def scale_of(columns: Columns) -> float:
    """A robust deviation of the observed entries, from a sample that is the same every time."""
    rows, count = columns.shape
    stride = max(1, rows * count // SCALE_SAMPLE) | 1  # odd, so that it does not walk along a row of a block
    sizes = np.concatenate([_sizes(columns, start, stop)[::stride] for start, stop in blocks(columns)])
    middle = 1.4826 * float(np.median(sizes)) if sizes.size else 0.0
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

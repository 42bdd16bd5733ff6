"""What the aggregator broadcasts in a private run, and a participant's side of it.

Between rounds a site keeps only the scale of each column, which follows from that column alone: every answer is a
function of the columns and the broadcast. Answers are exact; the service adds the noise before anything is saved or
sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.errors import BadMessage
from dcfpca.privacy.settings import LARGEST_CLIP, SMALLEST_CLIP
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Columns, FloatArray, Layout, ResultBlock, TensorMessage
from dcfpca.rpca.private.cleaning import Contributions, contributions
from dcfpca.rpca.private.column_scales import ColumnUnits
from dcfpca.rpca.private.schedule import LENGTH_BINS
from dcfpca.rpca.private.whole_numbers import WholeBasis, check_rounding
from dcfpca.rpca.robust_projection import project
from dcfpca.rpca.stage_checks import is_orthonormal

FIGURES = 4  # clip, columns, rank and error; then values and errors by direction


@dataclass(frozen=True, slots=True, eq=False)
class PrivatePlan:
    """U (m × width of the round, orthonormal), of which the first `rank` directions are in L.

    `errors` bound the sine of the angle between each direction of L and the space it estimates; `error` is the largest.
    """

    U: FloatArray
    clip: float
    columns: float
    rank: int
    error: float
    values: FloatArray
    errors: FloatArray = field(default_factory=lambda: np.zeros(0))

    @staticmethod
    def of(broadcast: TensorMessage) -> PrivatePlan:
        """Read it from a broadcast. BadMessage unless U is orthonormal: the sensitivity of the answer rests on it."""
        clip, columns, rank, error = (float(figure) for figure in broadcast.scalars[:FIGURES])
        values, errors = np.split(broadcast.scalars[FIGURES:], 2)
        plan = PrivatePlan(broadcast.tensor, clip, columns, int(rank), error, values, errors)
        if reason := plan.fault():
            raise BadMessage(reason)
        return plan

    def fault(self) -> str:
        """Why this plan cannot be true; empty if it is plausible."""
        if not np.isfinite(self.U).all() or not np.isfinite([self.clip, self.columns]).all():
            return "the consensus has numbers that are not finite"
        if not is_orthonormal(self.U):
            return "the directions of U are not orthonormal"
        if not SMALLEST_CLIP <= self.clip <= LARGEST_CLIP:
            return "the clip is not a length that columns can have"
        if not 0 <= self.rank <= min(self.U.shape[1], self.values.size):
            return "the rank is not one that the directions can have"
        return ""

    @property
    def entering(self) -> FloatArray:
        """The directions of L."""
        return self.U[:, : self.rank]

    def broadcast(self) -> TensorMessage:
        """Inverse of `of`."""
        figures = [self.clip, self.columns, float(self.rank), self.error]
        unknown = np.zeros(self.values.size - self.errors.size)
        return TensorMessage(self.U, np.concatenate([figures, self.values, self.errors, unknown]))


def plan_layout(rows: int, rank: int, width: int) -> Layout:
    """Of a plan with so many directions."""
    return Layout(rows, width, FIGURES + 2 * rank)


class PrivateFit:
    """The local half of a private run."""

    def __init__(self, columns: Columns, width: int) -> None:
        self._columns, self._width = columns, width
        self._blocks = blocks(columns)
        self._units: dict[int, ColumnUnits] = {}
        self._certificate: dict[str, float] = {}

    def opening(self) -> TensorMessage:
        """The number of columns and a histogram of their lengths."""
        self._check_rounding(1)
        rows, count = self._columns.shape
        basis, lengths = WholeBasis.of(np.zeros((rows, 0)), 0), np.zeros(LENGTH_BINS)
        for block in self._contributions(basis):
            lengths += block.length_counts()
        return TensorMessage(np.zeros((0, 0)), np.concatenate([[float(count)], lengths]))

    def answer(self, plan: PrivatePlan) -> TensorMessage:
        """Σ ỹ(ỹᵀU) in units of the clip."""
        self._check_rounding(plan.U.shape[1])
        total, basis = np.zeros(plan.U.shape), WholeBasis.of(plan.U, plan.rank)
        for block in self._contributions(basis):
            total += block.total(plan.clip)
        return TensorMessage(total, np.zeros(0))

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """Nothing is kept."""
        return {}

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Nothing to take up."""

    def finish(self, broadcast: TensorMessage) -> Iterator[ResultBlock]:
        """L = U Vᵀ by robust projection of the exact local columns on the private U, and S; they stay at the site."""
        plan, outliers, entries = PrivatePlan.of(broadcast), 0, 0
        for start, stop in self._blocks:
            M = self._columns.read(start, stop)
            found = project(plan.entering, M)
            V = np.zeros((stop - start, self._width))
            V[:, : plan.rank] = found.coefficients
            S = scipy.sparse.csc_array(found.outliers)
            outliers, entries = outliers + S.nnz, entries + int(np.isfinite(M).sum())
            yield ResultBlock(start, _low_rank(plan.entering, found.coefficients), S, V)
        self._certificate = {"outlier_share": outliers / max(entries, 1), "predicted_sine": plan.error}

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish` that was read to its end."""
        return dict(self._certificate)

    def _contributions(self, basis: WholeBasis) -> Iterator[Contributions]:
        """Of one block after the other."""
        for start, stop in self._blocks:
            block = contributions(self._columns.read(start, stop), basis, self._units.get(start))
            self._units[start] = block.units
            yield block

    def _check_rounding(self, width: int) -> None:
        rows, count = self._columns.shape
        check_rounding(rows, width, count, max((stop - start for start, stop in self._blocks), default=1))


def _low_rank(U: FloatArray, V: FloatArray) -> FloatArray:
    L: FloatArray = U @ V.T
    return L

"""What the aggregator tells the sites once the fit is over, and how it stands in a broadcast.

The tensor is U (m × p) and eight columns of one number per feature. The scalars end with those of the method's own last
broadcast: sites of a run that was not refined form their result from it, as they do without closing rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from dcfpca.rpca.method import FloatArray, Layout, Stage, TensorMessage
from dcfpca.rpca.refinement.column_fit import ColumnModel
from dcfpca.rpca.refinement.row_step import Subspace, ridge_of

FEATURE_COLUMNS = ("centre", "noise", "median", "spread", "reach", "one_value", "two_values", "null_scale")
HEAD = ("stage", "ending", "hiding", "fresh", "rank", "columns", "cut", "distance_scale")
VERDICT = (
    "predicted",
    "flagged",
    "worst_flagged",
    "worst_feature",
    "unexplained_features",
    "far_entries",
    "odd_columns",
)


class FitEnding(IntEnum):
    """How the fit ended, which says where L and the outliers come from."""

    EXACT = 0  # the data is low-rank plus sparse to the tolerance: L and S are those of the fit
    REFINED = 1  # it is not: L is that of the refinement, outliers are what the null calls so
    KEPT = 2  # L is that of the fit (`gradient`), outliers are what the null calls so


@dataclass(frozen=True, slots=True, eq=False)
class ClosingPlan:
    """The state of the closing rounds, all of which every site may know."""

    stage: Stage
    ending: FitEnding
    hiding: bool  # whether hidden entries are hidden in this round
    fresh: bool  # whether coefficients begin at a Huber fit, rather than at those of the round before
    rank: int
    columns: float  # n over all sites
    U: FloatArray  # m × p; the first `rank` directions make L
    variance: FloatArray  # p, of the coefficients
    centre: FloatArray
    noise: FloatArray
    median: FloatArray
    spread: FloatArray
    reach: FloatArray  # how far from its median nearly all of a feature's values lie
    one_value: FloatArray  # the share of a feature's entries that (nearly) its most frequent value makes up
    two_values: FloatArray  # … and its two most frequent values
    null_scale: FloatArray
    cut: float  # |z| beyond which entries are flagged; 0 before the null round
    distance_scale: float
    verdict: FloatArray  # the figures named in VERDICT; zeros until the end
    fit: TensorMessage  # the method's own last broadcast

    @property
    def has_null(self) -> bool:
        """Whether the null round was held; a run that an operator finishes earlier flags and scores nothing by it."""
        return self.cut > 0.0

    @property
    def model(self) -> ColumnModel:
        """What columns are fitted to."""
        kept = self.subspace
        return ColumnModel(kept.U, kept.centre, self.noise, ridge_of(kept, self.noise))

    @property
    def subspace(self) -> Subspace:
        """The directions that make L, and the centre."""
        return Subspace(self.U[:, : self.rank], self.centre, self.variance[: self.rank])

    def broadcast(self) -> TensorMessage:
        """As a message."""
        features = [getattr(self, name) for name in FEATURE_COLUMNS]
        head = [
            self.stage,
            self.ending,
            self.hiding,
            self.fresh,
            self.rank,
            self.columns,
            self.cut,
            self.distance_scale,
        ]
        scalars = [np.array(head, dtype=np.float64), self.verdict, self.variance, self.fit.scalars]
        return TensorMessage(np.column_stack([self.U, *features]), np.concatenate(scalars))

    @staticmethod
    def of(message: TensorMessage) -> ClosingPlan:
        """Inverse of `broadcast`."""
        width = message.tensor.shape[1] - len(FEATURE_COLUMNS)
        head, verdict, variance, fit = np.split(message.scalars, np.cumsum([len(HEAD), len(VERDICT), width]))
        stage, ending, hiding, fresh, rank, columns, cut, distance_scale = head
        U = np.ascontiguousarray(message.tensor[:, :width])
        features = dict(zip(FEATURE_COLUMNS, message.tensor[:, width:].T, strict=True))
        return ClosingPlan(
            stage=Stage(int(stage)),
            ending=FitEnding(int(ending)),
            hiding=bool(hiding),
            fresh=bool(fresh),
            rank=int(rank),
            columns=float(columns),
            U=U,
            variance=variance,
            **features,
            cut=float(cut),
            distance_scale=float(distance_scale),
            verdict=verdict,
            fit=TensorMessage(U, fit),
        )


def closing_layout(rows: int, width: int, fit: Layout) -> Layout:
    """The layout of `ClosingPlan.broadcast`."""
    variance = tuple(f"variance_{j}" for j in range(width))
    return Layout(rows, width + len(FEATURE_COLUMNS), (*HEAD, *VERDICT, *variance, *fit.scalars))

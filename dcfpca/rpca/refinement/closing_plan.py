"""What the aggregator sends to the sites after the fit, and its form as a broadcast.

The tensor is U (m × p) and eight columns of one number per feature. The scalars end with those of the method's own last
broadcast: sites of a run that was not refined form their result from it, as they do without closing rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import FIGURES, ONE_VALUE, TWO_VALUES, Calibration, calibration_width, factors
from dcfpca.rpca.calibration.expectation import ScoreModel
from dcfpca.rpca.calibration.sample_test import SampleNull
from dcfpca.rpca.method import FloatArray, Layout, TensorMessage
from dcfpca.rpca.refinement.alternating_fit import ColumnModel, Subspace, ridge_of
from dcfpca.rpca.refinement.outlyingness import FIGURES as OUTLYING_FIGURES
from dcfpca.rpca.refinement.outlyingness import Outlyingness

FEATURE_COLUMNS = ("centre", "noise", "median", "spread", "reach", "one_value", "two_values", "null_scale")
NULL_FIGURES = 3  # of `SampleNull`
HEAD = ("ending", "hiding", "fresh", "rank", "columns", "cut", "distance_scale", "taken")
VERDICT = (
    "predicted",
    "flagged",
    "worst_flagged",
    "worst_feature",
    "unexplained_features",
    "far_entries",
    "odd_columns",
    "flags",
    "ordinary",
    "ordinary_most",
    "failing",
    "on_few",
)


REFINE, VALIDATE, SHAPE, COVARIANCE, NULL, CHECK = "refine", "validate", "shape", "covariance", "null", "check"
CLOSING = (REFINE, VALIDATE, SHAPE, COVARIANCE, NULL, CHECK)  # the stages that have such a plan


LOCAL_OF_RATE, UNCHECKED_OF_RATE = 25.0, 15.0  # of the entries that are just flagged; the check counts those
MANY_FEATURES = 60.0  # of a sample
ENOUGH = 500.0  # samples that tell the tails of features, where no round checks how many flagged entries are ordinary
# Columns, or entries where features are few, of all sites that are enough to tell ranks apart: with more, each rank's
# error is known to far less than the margin that it is held against.
MOST_COLUMNS, MOST_ENTRIES = 10_000.0, 4e6
# A column's own coefficients err by as much as directions of one column a feature do: of ten a feature, directions add
# a tenth to the squared error of L, and all columns could take no more of it away.
PER_FEATURE = 10.0
# Of all columns: beside the sums over all, those over nearly all would tell of the few that are left out.
LARGEST_SAMPLE = 0.5


def local_rate(rate: float, rows: int) -> float:
    """The local false discovery rate at the cut, for the rate that a spec states of the whole list. A sample of many
    features has as many entries that may be flagged by chance, so that each must be surer."""
    return min(LOCAL_OF_RATE * rate, 0.5) * min(1.0, MANY_FEATURES / rows)


def unchecked_rate(rate: float, samples: float) -> float:
    """The same of a run whose flags no round checks: the fewer samples tell the tails, the less it is."""
    return min(UNCHECKED_OF_RATE * rate, 0.5) * min(1.0, samples / ENOUGH)


class FitEnding(IntEnum):
    """How the fit ended, which decides where L and the outliers come from."""

    EXACT = 0  # the data is low-rank plus sparse to the tolerance: L and S are those of the fit
    REFINED = 1  # it is not: L is that of the refinement, outliers are what the null calls so
    KEPT = 2  # L is that of the fit (`gradient`), outliers are what the null calls so


@dataclass(frozen=True, slots=True, eq=False)
class ClosingPlan:
    """The state of the closing rounds, all of which every site may know."""

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
    taken: float  # columns that the model was made from: those that do not lie far out
    outlying: Outlyingness
    sample_null: SampleNull
    verdict: FloatArray  # the figures named in VERDICT; zeros until the end
    fit: TensorMessage  # the method's own last broadcast
    calibration: Calibration | None = None  # from the rounds that find it on
    # By what entries were distrusted when the covariance was made: sites keep it, no broadcast has it.
    made_by: ScoreModel | None = None

    @property
    def has_null(self) -> bool:
        """Whether the null round took place; a run that an operator finishes before it flags and scores nothing by
        it."""
        return self.cut > 0.0

    @property
    def sample_share(self) -> float:
        """The share of all columns, at least 1 if all, that is enough to tell ranks apart, and to tell the null."""
        return self._share(max(MOST_COLUMNS, MOST_ENTRIES / self.U.shape[0]))

    @property
    def refined_share(self) -> float:
        """… that takes part in a round of refinement. One that hides entries serves to tell the rank alone."""
        least = MOST_COLUMNS if self.hiding else max(MOST_COLUMNS, PER_FEATURE * self.U.shape[0])
        return self._share(max(least, MOST_ENTRIES / self.U.shape[0]))

    @property
    def judged_share(self) -> float:
        """… whose deviations make the null. A fit that was not refined judges by its own L, which it has of all."""
        return self.sample_share if self.ending is FitEnding.REFINED else 1.0

    def _share(self, enough: float) -> float:
        share = float(enough / self.columns)
        return share if share <= LARGEST_SAMPLE else max(share, 1.0)

    @property
    def few(self) -> NDArray[np.bool_]:
        """Features of few values."""
        return (self.one_value > ONE_VALUE) | (self.two_values > TWO_VALUES)

    @property
    def model(self) -> ColumnModel:
        """The shared part that columns are fitted to."""
        kept = self.subspace
        return ColumnModel(kept.U, kept.centre, self.noise, ridge_of(kept, self.noise))

    @property
    def subspace(self) -> Subspace:
        """The directions that make L, and the centre."""
        return Subspace(self.U[:, : self.rank], self.centre, self.variance[: self.rank])

    def calm(self, M: FloatArray) -> NDArray[np.bool_]:
        """Which of these columns take part in what the model is made from."""
        return self.outlying.calm(M, self)

    def broadcast(self) -> TensorMessage:
        """As a message."""
        features = [getattr(self, name) for name in FEATURE_COLUMNS]
        head = [float(getattr(self, name)) for name in HEAD]
        samples = [self.outlying.scalars(), self.sample_null.scalars()]
        scalars = [np.array(head), *samples, self.verdict, self.variance, self.fit.scalars]
        tensor = np.column_stack([self.U, *features])
        if self.calibration is not None:
            tensor = np.column_stack([tensor, self.calibration.tensor()])
            scalars = [self.calibration.scalars(), *scalars]
        return TensorMessage(tensor, np.concatenate([[float(self.calibration is not None)], *scalars]))

    @staticmethod
    def of(message: TensorMessage) -> ClosingPlan:
        """Inverse of `broadcast`."""
        tensor, scalars, calibration = message.tensor, message.scalars[1:], None
        if message.scalars[0]:
            tensor, found = np.split(tensor, [tensor.shape[1] - calibration_width(tensor.shape[0])], axis=1)
            figures, scalars = np.split(scalars, [len(FIGURES)])
            calibration = Calibration.of(found, figures)
        width = tensor.shape[1] - len(FEATURE_COLUMNS)
        ends = np.cumsum([len(HEAD), OUTLYING_FIGURES, NULL_FIGURES, len(VERDICT), width])
        head, outlying, sample_null, verdict, variance, fit = np.split(scalars, ends)
        ending, hiding, fresh, rank, columns, cut, distance_scale, taken = head
        U = np.ascontiguousarray(tensor[:, :width])
        features = dict(zip(FEATURE_COLUMNS, tensor[:, width:].T, strict=True))
        return ClosingPlan(
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
            taken=float(taken),
            outlying=Outlyingness.of(outlying),
            sample_null=SampleNull(*sample_null.tolist()),
            verdict=verdict,
            fit=TensorMessage(U, fit),
            calibration=calibration,
        )


FORM = 3  # of a broadcast as results keep it; see `of_form`
FORMERLY_WHOLE = 128  # features up to which forms 1 and 2 have a whole covariance


def of_form(message: TensorMessage, form: int) -> TensorMessage:
    """A broadcast as an earlier version wrote it, in the present form. Form 2 has no covariance of more than 128
    features, and form 1 tells neither `taken`, of all columns there, nor `on_few`."""
    tensor, scalars, rows = message.tensor, message.scalars, message.tensor.shape[0]
    if form < FORM and scalars[0] and rows > FORMERLY_WHOLE:
        tensor = np.column_stack([tensor, np.zeros((rows, factors(rows)))])
    if form == 1:
        head = 1 + (len(FIGURES) if scalars[0] else 0)
        scalars = np.insert(scalars, head + HEAD.index("taken"), scalars[head + HEAD.index("columns")])
        verdict = head + len(HEAD) + OUTLYING_FIGURES + NULL_FIGURES
        scalars = np.insert(scalars, verdict + VERDICT.index("on_few"), 0.0)
    return TensorMessage(tensor, scalars)


def closing_layout(rows: int, width: int, fit: Layout, calibrated: bool) -> Layout:
    """The layout of `ClosingPlan.broadcast`, with or without a calibration."""
    figures = 1 + len(HEAD) + OUTLYING_FIGURES + NULL_FIGURES + len(VERDICT)
    columns, scalars = width + len(FEATURE_COLUMNS), figures + width + fit.scalars
    if calibrated:
        columns, scalars = columns + calibration_width(rows), scalars + len(FIGURES)
    return Layout(rows, columns, scalars)

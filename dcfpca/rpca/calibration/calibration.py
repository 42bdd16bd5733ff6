"""What a run knows about how entries are judged, and how the broadcasts of the last closing rounds carry it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.calibration.empirical_null import Null
from dcfpca.rpca.calibration.expectation import ScoreModel
from dcfpca.rpca.calibration.normal_scores import LEVELS, NormalScores
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.round_limits import WHOLE
from dcfpca.rpca.stage_checks import APART, of_figures, worst

TAIL_RANKS = (5, 10, 20, 50, 100)
"""The numbers of a feature's entries that exceed the published sizes; fewer than 5 might identify persons."""
FIGURES = ("freedom", "unit", "wrong", "cut", "ordinary")
VECTORS = ("reach", "few", "mean", "own", "above", "below", "entries")
ONE_VALUE, TWO_VALUES = 0.7, 0.9  # of a feature's entries: features of few values
CONSTANT = 0.999  # of a feature's entries, by merged counts: a feature that is taken to have no other value


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Shape and covariance of scores, and the null. Unknown parts are zero."""

    knots: FloatArray  # m × levels
    reach: FloatArray  # m: how far out the knots lie
    few: FloatArray  # m: 1 for a feature of few values, 2 where these have a range
    mean: FloatArray  # m, of scores
    own: FloatArray  # m: the part of a score's variance that no factor has
    above: FloatArray  # m: units of deviations above what is expected
    below: FloatArray
    entries: FloatArray  # m: of the feature, that were counted at all sites
    tails: FloatArray  # m × ranks: sizes that so many entries of the feature exceed
    factor: FloatArray  # m × m, or m × 0
    freedom: float = 0.0
    unit: float = 0.0
    wrong: float = 0.0
    cut: float = 0.0
    ordinary: float = -1.0  # the share of entries that a resample of the fit flags; negative until it is known

    @staticmethod
    def unknown(rows: int) -> Calibration:
        """Nothing yet."""
        return Calibration.of(np.zeros((rows, calibration_width(rows))), np.array([0.0, 0.0, 0.0, 0.0, -1.0]))

    @property
    def null(self) -> Null:
        """The null."""
        return Null(self.freedom, self.unit, self.wrong, self.cut)

    @property
    def whole(self) -> bool:
        """Whether the run has the whole covariance of scores."""
        return bool(self.own.any())

    @property
    def shape(self) -> NormalScores:
        """The map to scores."""
        return NormalScores(self.knots, self.reach)

    @property
    def of_few_values(self) -> NDArray[np.bool_]:
        """Which features have few values."""
        return self.few > 0.0

    @property
    def model(self) -> ScoreModel:
        """The model of scores."""
        return ScoreModel(self.mean, self.factor, self.own, self.of_few_values)

    def rank_of(self, sizes: FloatArray, features: NDArray[np.integer[Any]]) -> FloatArray:
        """The most entries that lie beyond each of these sizes in its feature, in steps of TAIL_RANKS; NaN: more."""
        rank = np.full(sizes.shape, np.nan)
        for number, size in zip(reversed(TAIL_RANKS), self.tails.T[::-1], strict=True):
            rank = np.where(sizes >= size[features], number, rank)
        return rank

    def tensor(self) -> FloatArray:
        """The columns of a broadcast."""
        return np.column_stack([self.knots, *(getattr(self, name) for name in VECTORS), self.tails, self.factor])

    def scalars(self) -> FloatArray:
        """The scalars of a broadcast."""
        return np.array([getattr(self, name) for name in FIGURES])

    @staticmethod
    def of(tensor: FloatArray, scalars: FloatArray) -> Calibration:
        """Inverse of `tensor` and `scalars`."""
        ends = np.cumsum([LEVELS.size, len(VECTORS), len(TAIL_RANKS)])
        knots, vectors, tails, factor = np.split(tensor, ends, axis=1)
        figures = dict(zip(FIGURES, scalars.tolist(), strict=True))
        named = dict(zip(VECTORS, vectors.T, strict=True))
        return Calibration(knots=knots, tails=tails, factor=factor, **named, **figures)


def factors(rows: int) -> int:
    """How many factors scores have."""
    return rows if rows <= WHOLE else 0


def calibration_width(rows: int) -> int:
    """The columns of `Calibration.tensor`."""
    return LEVELS.size + len(VECTORS) + len(TAIL_RANKS) + factors(rows)


def implausible(announced: Calibration) -> str:
    """Why no run can have this calibration; empty if it is plausible."""
    if (np.diff(announced.knots, axis=1) < 0.0).any():
        return "a feature's quantiles decrease"
    if (announced.own < 0.0).any() or (announced.above < 0.0).any() or (announced.below < 0.0).any():
        return "a feature's variance or unit is negative"
    return "" if 0.0 <= announced.wrong < 1.0 and announced.cut >= 0.0 else "the null has an impossible form"


def calibrations_apart(one: Calibration | None, other: Calibration | None) -> float:
    """The largest difference, factors by the covariance that they make."""
    if one is None or other is None:
        return 0.0 if one is other else APART
    size = np.abs(one.knots).max(axis=1, keepdims=True)
    return worst(
        of_figures(one.knots, other.knots, size),
        of_figures(one.reach, other.reach, 1.0),
        of_figures(one.few, other.few, 1.0),
        of_figures(one.mean, other.mean, 1.0),
        *(
            of_figures(getattr(one, name), getattr(other, name))
            for name in ("own", "above", "below", "entries", "tails")
        ),
        of_figures(one.factor @ one.factor.T, other.factor @ other.factor.T, 1.0),
        of_figures(one.scalars(), other.scalars()),
    )

"""What the aggregator broadcasts in a private run: U, the clip, and what is known of the directions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dcfpca.errors import BadMessage
from dcfpca.privacy.settings import LARGEST_CLIP, SMALLEST_CLIP
from dcfpca.rpca.method import FloatArray, Layout, TensorMessage
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
        """Why this plan cannot be true; empty when nothing speaks against it."""
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

"""The local step of `gradient`: K iterations on U from the slope over all of a site's columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.gradient.objective import Penalties
from dcfpca.rpca.gradient.settings import GradientPlan, GradientSettings
from dcfpca.rpca.gradient.singular_values import unit_of_strengths
from dcfpca.rpca.method import Columns, FloatArray, TensorMessage
from dcfpca.rpca.thresholds import NORMAL_MEDIAN

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
        """Fit V (and with it S) to this U, and the sums that follow; LinAlgError where U is beyond all bounds."""
        ...


def local_answer(
    problem: LocalProblem, settings: GradientSettings, round: int, broadcast: TensorMessage
) -> TensorMessage:
    """The update of a round of Algorithm 1: K local iterations from the broadcast U, then U_i and its counts."""
    count = float(problem.columns.shape[1])
    if round == 0:
        return TensorMessage(np.zeros((0, 0)), np.array([count, count * scale_of(problem.columns)]))
    plan = GradientPlan.of(broadcast)
    # A share, not a count: all that is sent is of order one, so that a fixed-point sum keeps its digits.
    share = count / plan.columns
    weight = share if settings.weights == "columns" else 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        found = _local_iterations(problem, settings, broadcast.tensor, plan, plan.step(round, settings.decay))
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
    stride = max(1, rows * count // SCALE_SAMPLE) | 1  # odd, so that it does not walk along a row of a block
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

"""The parameters that the aggregator of `subspace` broadcasts at the start of a round, and their encoding."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadMessage
from dcfpca.rpca.method import FloatArray, Layout, TensorMessage


class CoefficientStart(IntEnum):
    """The initial value of a site's coefficients V in a round."""

    CARRIED = 0  # at those of its last round, turned into the new U; at zero in its first round
    SWEPT = 1  # at one pass from L = 0, where the new U has nothing to do with the one V was made for
    PROJECTED = 2  # at a robust projection onto U, where the threshold is already low


@dataclass(frozen=True, slots=True, eq=False)
class RoundPlan:
    """A subspace, how far each of its directions enters L, and the parameters of the local passes."""

    U: FloatArray  # m × p, orthonormal columns
    threshold: float  # θ
    noise: float  # σ̄, the unit in which residuals are counted
    relaxation: float  # ω of all passes but the last
    step: float  # ω of the last pass, which the update is made of
    momentum: float  # β
    single: bool  # work in single precision
    narrow: bool  # update only the directions that enter L; the others rest
    start: CoefficientStart
    columns: float  # n, over all sites
    weights: FloatArray  # d, by direction
    values: FloatArray  # singular values, by direction

    @staticmethod
    def of(broadcast: TensorMessage) -> RoundPlan:
        """Read the plan from a broadcast; raises BadMessage where it names no known start."""
        head, width = len(PLAN_SCALARS), broadcast.tensor.shape[1]
        threshold, noise, relaxation, step, momentum, single, narrow, start, n = broadcast.scalars[:head].tolist()
        flags = bool(single), bool(narrow), _start(start)
        weights, values = broadcast.scalars[head : head + width], broadcast.scalars[head + width :]
        U = np.require(broadcast.tensor, requirements=["C", "W"])  # the only kind that loops are compiled for
        return RoundPlan(U, threshold, noise, relaxation, step, momentum, *flags, n, weights, values)

    def broadcast(self) -> TensorMessage:
        """The inverse of `of`."""
        numbers = [float(getattr(self, name)) for name in PLAN_SCALARS]
        return TensorMessage(self.U, np.concatenate([numbers, self.weights, self.values]))

    @property
    def entering(self) -> NDArray[np.intp]:
        """The places of the directions that enter L."""
        return self.weights.nonzero()[0]


STARTS = {float(rule): rule for rule in CoefficientStart}
PLAN_SCALARS = tuple(field.name for field in fields(RoundPlan) if field.name not in ("U", "weights", "values"))


def broadcast_layout(rows: int, width: int, round_number: int) -> Layout:
    """The layout of the broadcast: empty in round 0, then U, the round's parameters, and d and σ by direction."""
    return Layout(0, 0) if round_number == 0 else _plan_layout(rows, width)


@lru_cache(maxsize=64)
def _plan_layout(rows: int, width: int) -> Layout:
    weights = tuple(f"weight_{j}" for j in range(width))
    values = tuple(f"singular_value_{j}" for j in range(width))
    return Layout(rows, width, (*PLAN_SCALARS, *weights, *values))


def _start(number: float) -> CoefficientStart:
    if number not in STARTS:
        raise BadMessage(f"The broadcast asks for coefficients to start by rule {number:g}, which does not exist.")
    return STARTS[number]

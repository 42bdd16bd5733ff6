"""What the aggregator of `subspace` broadcasts at the start of a round of the fit, and its own state between rounds."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadMessage
from dcfpca.rpca.method import Consensus, FloatArray, Layout, TensorMessage
from dcfpca.rpca.subspace.schedule import Schedule
from dcfpca.rpca.subspace.settings import SubspaceSettings

SMALLEST_SCALE = 1e-11  # of the largest: below lies rounding, which must not be amplified


class CoefficientStart(IntEnum):
    """The initial value of a site's coefficients V in a round."""

    CARRIED = 0  # at those of its last round, turned into the new U; at zero in its first round
    SWEPT = 1  # at one pass from L = 0, where the new U has nothing to do with the one V was made for
    PROJECTED = 2  # at a robust projection onto U, where the threshold is already low


@dataclass(frozen=True, slots=True, eq=False)
class RoundPlan:
    """A subspace, how far each of its directions enters L, and the parameters of the local passes."""

    U: FloatArray  # m × p, orthonormal columns
    number: int  # which round of the fit this is, from 1
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
        number, threshold, noise, relaxation, step, momentum, *flags, start, n = broadcast.scalars[:head].tolist()
        weights, values = broadcast.scalars[head : head + width], broadcast.scalars[head + width :]
        U = np.require(broadcast.tensor, requirements=["C", "W"])  # the only kind that loops are compiled for
        single, narrow = map(bool, flags)
        if start not in STARTS:
            raise BadMessage(f"The broadcast asks for coefficients to start by rule {start:g}, which does not exist.")
        passes = threshold, noise, relaxation, step, momentum, single, narrow, STARTS[start]
        return RoundPlan(U, int(number), *passes, n, weights, values)

    def broadcast(self) -> TensorMessage:
        """The inverse of `of`."""
        numbers = list(map(float, _plan_scalars(self)))
        return TensorMessage(self.U, np.concatenate([numbers, self.weights, self.values]))

    @property
    def entering(self) -> NDArray[np.intp]:
        """The places of the directions that enter L."""
        return self.weights.nonzero()[0]


STARTS = {float(rule): rule for rule in CoefficientStart}
PLAN_SCALARS = tuple(field.name for field in fields(RoundPlan) if field.name not in ("U", "weights", "values"))
_plan_scalars = attrgetter(*PLAN_SCALARS)


def plan_layout(rows: int, width: int) -> Layout:
    """The layout of the broadcast: U, the round's parameters, and d and σ by direction."""
    return Layout(rows, width, len(PLAN_SCALARS) + 2 * width)


def unit_and_scales(values: FloatArray) -> tuple[float, FloatArray]:
    """The unit of the tensor a site sends, about the largest singular value; and the divisors of V that give its
    columns unit length over all sites together. They make its entries of order one, and follow from the broadcast."""
    largest = float(values.max())
    unit = largest if largest > 0.0 else 1.0
    return unit, np.maximum(values, SMALLEST_SCALE * unit)


_schedule_figures = attrgetter(*(field.name for field in fields(Schedule)))


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The subspace, its singular values and weights, and the counters that the rules of a round need."""

    U: FloatArray
    weights: FloatArray
    values: FloatArray
    schedule: Schedule
    number: int = 1  # of the round of the fit that begins with this state
    change: float = 1.0  # how far L moved in the last round, relatively
    quiet: int = 0  # rounds in a row in which L was at rest, under final thresholds
    narrow: int = 0  # rounds in a row, the next included, in which only entering directions are updated
    held: int = 0  # rounds in a row in which directions were held back for stronger ones

    @staticmethod
    def of(consensus: Consensus) -> State:
        """Read it from a consensus of the fit."""
        plan = RoundPlan.of(consensus.broadcast)
        change, *counts = consensus.memory["rest"]
        schedule = Schedule(*consensus.memory["schedule"])
        return State(plan.U, plan.weights, plan.values, schedule, plan.number, float(change), *map(int, counts))

    def memory(self) -> dict[str, FloatArray]:
        """The part of the state that the broadcast does not hold; `of` reads both."""
        counters = [self.change, self.quiet, self.narrow, self.held]
        return {"schedule": np.array(_schedule_figures(self.schedule)), "rest": np.array(counters)}

    def plan(self, start: CoefficientStart, settings: SubspaceSettings) -> RoundPlan:
        """The plan of the next round, with this initial value of V."""
        schedule = self.schedule
        return RoundPlan(
            U=self.U,
            number=self.number,
            threshold=schedule.threshold(settings),
            noise=schedule.noise,
            relaxation=schedule.relaxation,
            step=schedule.step,
            momentum=schedule.momentum,
            single=schedule.single > 0.0,
            narrow=self.narrow > 0,
            start=start,
            columns=schedule.columns,
            weights=self.weights,
            values=self.values,
        )

"""The aggregator's state of `subspace` between rounds, and its encoding in a consensus."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from dcfpca.rpca.method import Consensus, FloatArray
from dcfpca.rpca.subspace.round_plan import CoefficientStart, RoundPlan
from dcfpca.rpca.subspace.schedule import Schedule
from dcfpca.rpca.subspace.settings import SubspaceSettings

SCHEDULE_FIGURES = tuple(field.name for field in fields(Schedule))


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The subspace, its singular values and weights, and the counters that the rules of a round need."""

    U: FloatArray
    weights: FloatArray
    values: FloatArray
    schedule: Schedule
    change: float = 1.0  # how far L moved in the last round, relatively
    quiet: int = 0  # rounds in a row in which L was at rest, under final thresholds
    narrow: int = 0  # rounds in a row, the next included, in which only entering directions are updated
    held: int = 0  # rounds in a row in which directions were held back for stronger ones

    @staticmethod
    def of(consensus: Consensus) -> State:
        """Read it from a consensus of round 1 or later."""
        plan = RoundPlan.of(consensus.broadcast)
        change, *counts = consensus.memory["rest"]
        schedule = Schedule(*consensus.memory["schedule"])
        return State(plan.U, plan.weights, plan.values, schedule, float(change), *map(int, counts))

    def memory(self) -> dict[str, FloatArray]:
        """The part of the state that the broadcast does not hold; `of` reads both."""
        counters = [self.change, self.quiet, self.narrow, self.held]
        figures = [getattr(self.schedule, name) for name in SCHEDULE_FIGURES]
        return {"schedule": np.array(figures), "rest": np.array(counters)}

    def plan(self, start: CoefficientStart, settings: SubspaceSettings) -> RoundPlan:
        """The plan of the next round, with this initial value of V."""
        schedule = self.schedule
        return RoundPlan(
            U=self.U,
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

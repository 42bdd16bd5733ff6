"""The aggregator's side of `gradient`: the paper's Algorithm 1, DCF-PCA (docs/solver.md).

U is the mean of the sites' U_i after K local gradient steps each. With K = 1, exact local solves and equal weights this
is one gradient step on g(U) = Σ g_i(U) with step η/E (the mean of E steps of η each), however the columns are split.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.gradient.local_step import local_answer
from dcfpca.rpca.gradient.objective import check_penalties
from dcfpca.rpca.gradient.partitioned_problem import PartitionedProblem
from dcfpca.rpca.gradient.settings import (
    OPENING,
    PLAN,
    GradientPlan,
    GradientSettings,
    Opening,
    plan_of,
    round_scalars,
    unit_of,
)
from dcfpca.rpca.gradient.singular_values import singular_values, unit_of_strengths
from dcfpca.rpca.gradient.site import GradientSite
from dcfpca.rpca.initial_basis import opening_factor
from dcfpca.rpca.method import (
    Columns,
    Consensus,
    FloatArray,
    Layout,
    Outcome,
    Partition,
    Progress,
    Stage,
    TensorMessage,
    Total,
    Verdict,
)

__all__ = ["GradientMethod", "GradientSettings"]


@dataclass(frozen=True, slots=True)
class GradientMethod:
    """`width` is the rank, or an upper bound of it. With `tolerance` 0 the run goes through all its rounds."""

    rows: int
    width: int
    rounds: int
    tolerance: float = 0.0
    seed: int = 0
    settings: GradientSettings = field(default_factory=GradientSettings)

    def __post_init__(self) -> None:
        if not 1 <= self.width <= self.rows:
            raise BadInput(f"Rank {self.width} does not fit {self.rows} rows.", f"Choose a rank from 1 to {self.rows}.")
        if self.rounds < 1 or not self.tolerance >= 0.0:
            raise BadInput("A run needs at least one round and a tolerance that is not negative.")

    @property
    def opening_rounds(self) -> int:
        """All rounds after the opening exchange are alike."""
        return 0

    @property
    def reads_per_round(self) -> int:
        """Every local iteration is a pass over the columns."""
        return self.settings.local_iterations

    def step_flops(self, columns: int) -> float:
        """An iteration fits V from the residual and forms the slope from a second one; each further alternation adds a
        residual and a product."""
        products = 4 + 2 * (max(self.settings.inner_steps, 1) - 1)
        return 2.0 * self.rows * self.width * columns * self.settings.local_iterations * products

    def update_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """Two scalars in round 0; then U_i, the share of columns, a mark of divergence and the strengths."""
        return Layout(0, 0, OPENING) if round == 0 else Layout(self.rows, self.width, round_scalars(self.width))

    def broadcast_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """Nothing in round 0; then U and the plan."""
        return Layout(0, 0) if round == 0 else Layout(self.rows, self.width, PLAN)

    def begin(self) -> Consensus:
        """Ask for column counts and scales."""
        return Consensus(round=0, broadcast=TensorMessage(np.zeros((0, 0)), np.zeros(0)))

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The opening gives the plan and the first U; every further round the mean of the sites' U_i."""
        if consensus.round == 0:
            return self._open(consensus, total)
        share, diverged = total.sums.scalars[:2]
        weight = share if self.settings.weights == "columns" else float(total.contributors)
        U = total.sums.tensor / weight
        if diverged > 0.5 or not np.isfinite(U).all():
            return replace(consensus, outcome=Outcome.DIVERGED)
        columns = GradientPlan.of(consensus.broadcast).columns
        strengths = total.sums.scalars[2:] * columns * unit_of_strengths(consensus.broadcast.tensor)
        return self._step(consensus, U, share * columns, singular_values(U, strengths))

    def site(self, columns: Columns) -> GradientSite:
        """The side of a participant that holds these columns."""
        if columns.shape[0] != self.rows:
            raise BadInput(f"The matrix has {columns.shape[0]} rows, the run is about {self.rows}.")
        return GradientSite(columns, self.width, self.settings)

    def partitioned_answer(self, partition: Partition, round: int, broadcast: TensorMessage) -> TensorMessage:
        """The local step with every pass taken over all parts."""
        return local_answer(PartitionedProblem(partition), self.settings, round, broadcast)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The consensus U, and the singular values of U Vᵀ with the V of the last round."""
        return {"U": consensus.broadcast.tensor, "singular_values": consensus.progress.singular_values}

    def verdict(self, consensus: Consensus) -> Verdict | None:
        """None: the fit alone does not tell; `StagedMethod` adds the rounds that do."""
        return None

    def _open(self, asked: Consensus, total: Total) -> Consensus:
        columns, columns_scale = (float(value) for value in total.sums.scalars)
        if self.width > columns:
            raise BadInput(
                f"Rank {self.width} does not fit {columns:.0f} columns.", f"Choose a rank from 1 to {columns:.0f}."
            )
        opening = Opening(self.rows, columns, total.contributors, columns_scale / columns)
        unit = unit_of(self.settings, opening.scale, self.width)
        plan = plan_of(self.settings, opening, unit)
        check_penalties(plan.penalties, self.rows, round(columns))
        start = opening_factor(self.rows, self.width, self.seed, unit, asked.memory)
        return Consensus(
            round=1,
            broadcast=plan.broadcast(start),
            progress=Progress(rank=self.width, threshold=plan.lambda_),
        )

    def _step(self, consensus: Consensus, U: FloatArray, columns: float, values: FloatArray) -> Consensus:
        plan = replace(GradientPlan.of(consensus.broadcast), columns=columns)
        before = consensus.broadcast.tensor
        change = float(np.linalg.norm(U - before)) / max(float(np.linalg.norm(before)), np.finfo(float).tiny)
        still = consensus.memory.get("still", np.zeros(1)) + 1.0 if change < self.tolerance else np.zeros(1)
        outcome = self._outcome(consensus.round, int(still[0]))
        return Consensus(
            round=consensus.round if outcome else consensus.round + 1,
            broadcast=plan.broadcast(U),
            memory={"still": still},
            progress=Progress(change=change, rank=self.width, threshold=plan.lambda_, singular_values=values),
            outcome=outcome,
        )

    def _outcome(self, round_number: int, still_rounds: int) -> Outcome | None:
        if still_rounds >= 2:
            return Outcome.CONVERGED
        return Outcome.OUT_OF_ROUNDS if round_number >= self.rounds else None

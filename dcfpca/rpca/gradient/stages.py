"""The stages of `gradient`, the paper's Algorithm 1, DCF-PCA (docs/solver.md).

Stage `open` sums column counts and scales, from which come the penalties, the step and the first U. In every round of
stage `fit` U becomes the mean of the sites' U_i after K local gradient steps each. With K = 1, exact local solves and
equal weights this is one gradient step on g(U) = Σ g_i(U) with step η/E (the mean of E steps of η each), however the
columns are split.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.gradient.objective import Penalties, check_penalties, singular_values, unit_of_strengths
from dcfpca.rpca.gradient.settings import GradientPlan, GradientSettings, Opening, plan_of, unit_of
from dcfpca.rpca.gradient.site import GradientFit, GradientSums, local_answer, local_opening
from dcfpca.rpca.initial_basis import opening_factor, warm_mark
from dcfpca.rpca.method import Columns, Consensus, FloatArray, Kind, Layout, Outcome, Progress, TensorMessage, Total
from dcfpca.rpca.stage import Partition, QuietStage, Stage
from dcfpca.rpca.stage_checks import (
    JUMP,
    broken_count,
    exceeds,
    implausible_columns,
    indefinite,
    of_figures,
    unequal,
    worst,
)
from dcfpca.rpca.stage_list import Method, StagedSite

OPEN, FIT = "open", "fit"
PLAN = 5  # scalars of `GradientPlan`
STILL_ROUNDS = 2  # one round at rest may be chance
STEEPEST_FALL = 8  # of the exponents of a secure sum, from round to round


@dataclass(frozen=True, slots=True)
class GradientSolver:
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
    def reads_per_round(self) -> int:
        """Every local iteration is a pass over the columns."""
        return self.settings.local_iterations

    def step_flops(self, columns: int) -> float:
        """An iteration fits V from one residual and forms the slope from a second; each further alternation adds a
        residual and a product."""
        products = 4 + 2 * (max(self.settings.inner_steps, 1) - 1)
        return 2.0 * self.rows * self.width * columns * self.settings.local_iterations * products

    def local(self, columns: Columns) -> GradientFit:
        """What a site that holds these columns begins with."""
        if columns.shape[0] != self.rows:
            raise BadInput(f"The matrix has {columns.shape[0]} rows, the run is about {self.rows}.")
        return GradientFit(columns, self.width, self.settings)


class GradientOpening(QuietStage):
    """One round of two scalars, before stage `then`."""

    def __init__(self, solver: GradientSolver, then: str) -> None:
        up = Layout(0, 0, 2, kinds=((1, Kind.COUNT), (1, Kind.SCALE)))
        super().__init__(OPEN, up=up, then=then)
        self._solver = solver

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """n_i and n_i × scale_i."""
        return local_opening(site.view.shown)

    def combine(self, partition: Partition, asked: Consensus) -> TensorMessage:
        """The scale is that of all columns, not a mean over parts."""
        return local_opening(partition.columns)

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """All of it: both numbers are about all columns."""
        return exact

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The plan and the first U."""
        solver, settings = self._solver, self._solver.settings
        columns, columns_scale = (float(value) for value in total.sums.scalars)
        if solver.width > columns:
            raise BadInput(
                f"Rank {solver.width} does not fit {columns:.0f} columns.", f"Choose a rank from 1 to {columns:.0f}."
            )
        opening = Opening(solver.rows, columns, total.contributors, columns_scale / columns)
        unit = unit_of(settings, opening.scale, solver.width)
        plan = plan_of(settings, opening, unit)
        check_penalties(plan.penalties, solver.rows, round(columns))
        start = opening_factor(solver.rows, solver.width, solver.seed, unit, consensus.memory)
        return Consensus(
            consensus.round + 1,
            self.then[0],
            plan.broadcast(start),
            {**consensus.memory, **warm_mark(consensus.memory), "still": np.zeros(1)},
            Progress(rank=solver.width, threshold=plan.lambda_),
        )

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Every site has a column, and no scale is negative."""
        (count, scale), rounding = total.sums.scalars, total.rounding[1]
        if reason := broken_count(np.array([count]), rounding, what="the number of columns"):
            return reason
        if exceeds(total.contributors, count, rounding):
            return "there are fewer columns than sites"
        return "a scale is negative" if scale < -rounding else ""


class GradientRounds(Stage):
    """The rounds of the fit. The run ends with them, unless a stage around this one continues."""

    def __init__(self, solver: GradientSolver) -> None:
        rows, width = solver.rows, solver.width
        up = Layout(rows, width, 2 + width * (width + 1) // 2)
        super().__init__(FIT, down=Layout(rows, width, PLAN), up=up, then=(FIT,))
        self._solver = solver

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """U after K local iterations, or a mark that it is no longer finite."""
        assert isinstance(site.fit, GradientFit)
        return local_answer(site.fit, self._solver.settings, asked.broadcast)

    def combine(self, partition: Partition, asked: Consensus) -> TensorMessage:
        """The local step with every pass taken over all parts."""
        return local_answer(PartitionedProblem(partition), self._solver.settings, asked.broadcast)

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """All of it: nothing is counted."""
        return exact

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The mean of the sites' U_i, and whether it has converged."""
        share, diverged = total.sums.scalars[:2]
        weight = share if self._solver.settings.weights == "columns" else float(total.contributors)
        U = total.sums.tensor / weight
        if diverged > 0.5 or not np.isfinite(U).all():
            return replace(consensus, outcome=Outcome.DIVERGED)
        plan, before = GradientPlan.of(consensus.broadcast), consensus.broadcast.tensor
        values = singular_values(U, total.sums.scalars[2:] * plan.columns * unit_of_strengths(before))
        change = float(np.linalg.norm(U - before)) / max(float(np.linalg.norm(before)), np.finfo(float).tiny)
        still = consensus.memory["still"] + 1.0 if change < self._solver.tolerance else np.zeros(1)
        outcome = Outcome.CONVERGED if still[0] >= STILL_ROUNDS else None
        if outcome is None and plan.number >= self._solver.rounds:
            outcome = Outcome.OUT_OF_ROUNDS
        after = replace(plan, number=plan.number + 1.0, columns=share * plan.columns)
        return Consensus(
            consensus.round if outcome else consensus.round + 1,
            self.name,
            after.broadcast(U),
            {**consensus.memory, "still": still},
            Progress(change=change, rank=self._solver.width, threshold=plan.lambda_, singular_values=values),
            outcome,
        )

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The consensus U, and the singular values of U Vᵀ with the V of the last round."""
        return {"U": consensus.broadcast.tensor, "singular_values": consensus.progress.singular_values}

    def all_columns(self, asked: Consensus) -> float:
        """The number in the plan."""
        return GradientPlan.of(asked.broadcast).columns

    def plausible(self, announced: Consensus, before: Consensus | None, precision: int) -> str:
        """Penalties and rate are positive and stay; U does not explode."""
        plan = GradientPlan.of(announced.broadcast)
        if not (plan.lambda_ > 0.0 and plan.rho > 0.0 and plan.learning_rate > 0.0):
            return "a penalty or the learning rate is not positive"
        if plan.number not in range(1, self._solver.rounds + 1):
            return "the fit has no such round"
        if before is None or before.stage != self.name:
            return implausible_columns(plan.columns, None, precision)
        earlier = GradientPlan.of(before.broadcast)
        if plan.number - earlier.number != announced.round - before.round:
            return "the rounds of the fit do not count on from the round before"
        fixed = (plan.lambda_, plan.rho, plan.learning_rate)
        if fixed != (earlier.lambda_, earlier.rho, earlier.learning_rate):
            return "a penalty or the learning rate is not that of the round before"
        size = max(float(np.linalg.norm(before.broadcast.tensor)), 1e-300)
        if float(np.linalg.norm(announced.broadcast.tensor)) > JUMP * np.sqrt(self._solver.rows) * size:
            return "the factor U is far larger than in the round before"
        return implausible_columns(plan.columns, earlier.columns, precision)

    def difference(self, expected: Consensus, announced: TensorMessage) -> float:
        """Each column of U in its own size, and each figure of the plan: a mean is the same on every machine."""
        lengths = np.linalg.norm(expected.broadcast.tensor, axis=0)
        return worst(
            of_figures(expected.broadcast.tensor, announced.tensor, lengths / np.sqrt(self._solver.rows)),
            of_figures(expected.broadcast.scalars, announced.scalars),
        )

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """The columns are all there, marks are ones, and VᵀV is a sum of squares."""
        (share, diverged), rounding = total.sums.scalars[:2], total.rounding[1]
        if reason := broken_count(np.array([diverged]), rounding, total.contributors, "the count of diverged sites"):
            return reason
        if np.rint(diverged) > 0:
            return ""
        # The number of columns has the digits of the sum before, whose exponents may have been higher.
        if total.whole and unequal(share, 1.0, (1.0 + 2.0**STEEPEST_FALL) * rounding):
            return "the sites do not have the columns that they had before"
        width = self._solver.width
        gram = np.zeros((width, width))
        gram[np.triu_indices(width)] = total.sums.scalars[2:]
        gram = gram + np.triu(gram, 1).T
        return "the sum of squares of V is negative" if indefinite(gram, rounding) else ""


@dataclass(frozen=True, slots=True, eq=False)
class PartitionedProblem:
    """A `LocalProblem` whose sums are taken over the parts: every local iteration goes on from the slope over all
    columns, so each is one question to all parts."""

    partition: Partition

    @property
    def columns(self) -> Columns:
        """The site's whole matrix."""
        return self.partition.columns

    def fit(self, U: FloatArray, penalties: Penalties) -> GradientSums:
        """Fit V to this U in every part."""
        total = self.partition.total(GradientPass(U, penalties))
        return GradientSums(total[: U.size].reshape(U.shape), total[U.size :])


@dataclass(frozen=True, slots=True, eq=False)
class GradientPass:
    """Asks a part for its sums under this U."""

    U: FloatArray
    penalties: Penalties

    def __call__(self, site: StagedSite) -> FloatArray:
        """The part's slope and VᵀV as one vector."""
        assert isinstance(site.fit, GradientFit)  # parts are sites of the method that asks
        sums = site.fit.fit(self.U, self.penalties)
        return np.concatenate([sums.slope.ravel(), sums.gram])


def gradient_method(solver: GradientSolver) -> Method:
    """An opening, then the rounds that fit."""
    return Method(solver, (GradientOpening(solver, FIT), GradientRounds(solver)))

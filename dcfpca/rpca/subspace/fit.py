"""Stage `fit` of `subspace`: rounds of orthogonal iteration, until L is at rest under its final thresholds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dcfpca.errors import BadMessage
from dcfpca.rpca.initial_basis import WARM
from dcfpca.rpca.kernels.numpy_loops import HISTOGRAM_BINS
from dcfpca.rpca.method import Consensus, FloatArray, Layout, Outcome, Progress, TensorMessage, Total
from dcfpca.rpca.small_cells import merge_shares
from dcfpca.rpca.stage import Stage
from dcfpca.rpca.stage_checks import (
    APART,
    JUMP,
    TOLERANCE,
    exceeds,
    implausible_columns,
    indefinite,
    is_orthonormal,
    of_directions,
    of_figures,
    of_strengths,
    relative_rounding,
    unequal,
    worst,
)
from dcfpca.rpca.stage_list import Method, StagedSite
from dcfpca.rpca.subspace.next_state import hold_against, next_state
from dcfpca.rpca.subspace.round_plan import CoefficientStart, RoundPlan, State, plan_layout, unit_and_scales
from dcfpca.rpca.subspace.schedule import QUIET_ROUNDS, final_thresholds, first_level
from dcfpca.rpca.subspace.site import SubspaceFit
from dcfpca.rpca.subspace.solver import SubspaceOpening, SubspaceSolver

FIT = "fit"
SHARES = 4  # of columns, of influence, of entries that are kept, of sampled entries; then the histogram
KEPT = 2
UNIT_LENGTH = 1e-6
"""How far from one the length of a direction that rests may be."""
SAME = 1e-6
"""Relative difference within which figures that follow from each other agree."""
SINGLE_SLACK = 1e-3
"""Of squares that sites add up in single precision."""


class SubspaceRounds(Stage):
    """The rounds that fit. The run is over when they are, unless a stage around this one goes on."""

    def __init__(self, solver: SubspaceSolver) -> None:
        rows, width = solver.rows, solver.width
        up = Layout(rows, width, SHARES + HISTOGRAM_BINS)
        super().__init__(FIT, down=plan_layout(rows, width), up=up, then=(FIT,))
        self._solver = solver

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """Z = Y V̂ after the local passes, and counts of residual sizes."""
        assert isinstance(site.fit, SubspaceFit)
        return site.fit.answer(asked.round, RoundPlan.of(asked.broadcast))

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """Counts of sizes with small cells merged, and of entries that are kept in steps of `least`: so a few that are
        not kept among many cannot be distinguished from none."""
        unit = RoundPlan.of(asked.broadcast).columns * min(self._solver.rows, self._solver.settings.sampled_rows)
        scalars = exact.scalars.copy()
        scalars[KEPT] = np.floor(np.rint(scalars[KEPT] * unit) / least) * least / unit
        scalars[SHARES:] = merge_shares(scalars[None, SHARES:], unit, least)[0]
        return TensorMessage(exact.tensor, scalars)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The next subspace and its thresholds, or the end of the run."""
        if not (np.isfinite(total.sums.tensor).all() and np.isfinite(total.sums.scalars).all()):
            return replace(consensus, outcome=Outcome.DIVERGED)
        old, warm = State.of(consensus), WARM in consensus.memory
        if warm and old.number == 1:
            return self._close(consensus, hold_against(self._solver, old, total.sums), CoefficientStart.CARRIED)
        # V of a random U says nothing about the next one.
        start = CoefficientStart.SWEPT if old.number == 1 else CoefficientStart.CARRIED
        return self._close(consensus, next_state(self._solver, old, total.sums, warm=warm), start)

    def _close(self, consensus: Consensus, state: State, start: CoefficientStart) -> Consensus:
        """End the round: either the run is over, or the next round opens, in which V begins at `start`."""
        solver, outcome = self._solver, None
        if state.quiet >= QUIET_ROUNDS:
            state = replace(state, schedule=final_thresholds(state.schedule, solver.settings, solver.tolerance))
            outcome = Outcome.CONVERGED
        elif state.number > solver.rounds:
            outcome = Outcome.OUT_OF_ROUNDS
        rank = int(np.count_nonzero(state.weights))
        kept_values = (state.weights * state.values)[state.weights > 0.0]
        plan = state.plan(start, solver.settings)
        progress = Progress(state.change, rank, state.schedule.noise, plan.threshold, kept_values)
        round = consensus.round if outcome else consensus.round + 1
        return Consensus(round, self.name, plan.broadcast(), {**consensus.memory, **state.memory()}, progress, outcome)

    def all_columns(self, asked: Consensus) -> float:
        """The number in the plan."""
        return RoundPlan.of(asked.broadcast).columns

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """U (m × rank) and the singular values of L."""
        plan = RoundPlan.of(consensus.broadcast)
        return {
            "U": np.ascontiguousarray(plan.U[:, plan.entering]),
            "singular_values": (plan.weights * plan.values)[plan.entering],
        }

    def plausible(self, announced: Consensus, before: Consensus | None, precision: int) -> str:
        """Directions, parameters and columns that a round can have, after those of the round before."""
        try:
            plan = RoundPlan.of(announced.broadcast)
        except BadMessage as error:
            return str(error)
        earlier = RoundPlan.of(before.broadcast) if before is not None and before.stage == self.name else None
        rounds = 0 if before is None else announced.round - before.round
        if earlier is not None and plan.number - earlier.number != rounds:
            return "the rounds of the fit do not count on from the round before"
        reasons = (
            _implausible_directions(plan),
            self._implausible_parameters(plan),
            implausible_columns(plan.columns, earlier.columns if earlier else None, precision),
            self._implausible_growth(plan, earlier) if earlier else "",
        )
        return next(filter(None, reasons), "")

    def _implausible_parameters(self, plan: RoundPlan) -> str:
        settings = self._solver.settings
        if not 1 <= plan.number <= self._solver.rounds:
            return "the fit has no such round"
        if not (plan.noise > 0.0 and plan.threshold > 0.0):
            return "the noise or the threshold is not positive"
        if plan.threshold < settings.noise_factor * plan.noise * (1.0 - SAME):
            return "the threshold is below what the announced noise allows"
        # Figures are kept on a grid of two per cent, so a relaxation may stand one step above its limit.
        most = settings.largest_relaxation * 1.04
        if not (0.0 < plan.relaxation <= most and 0.0 < plan.step <= most and 0.0 <= plan.momentum < 1.0):
            return "relaxation, step or momentum is outside its limits"
        return ""

    def _implausible_growth(self, plan: RoundPlan, before: RoundPlan) -> str:
        """Thresholds fall, or follow the noise; scales stay of the order that entries below the threshold can have."""
        solver = self._solver
        most = JUMP * np.sqrt(solver.rows)
        if plan.noise > most * before.noise and plan.noise > before.threshold:
            return "the noise is far above that of the round before"
        # A run begins anew after its first round, at a multiple of the noise that was measured in it.
        multiple = 2.0 * solver.settings.noise_factor
        if plan.start is CoefficientStart.SWEPT:
            multiple = first_level(solver.settings.adjusted(min(float(solver.rows), plan.columns)))
        if plan.threshold > max(before.threshold, multiple * plan.noise) * (1.0 + SAME):
            return "the threshold rose though the noise did not"
        largest = max(float(before.values.max(initial=0.0)), before.threshold * np.sqrt(before.columns))
        if float(plan.values.max(initial=0.0)) > most * largest:
            return "a singular value is far above those of the round before"
        return ""

    def difference(self, expected: Consensus, announced: TensorMessage) -> float:
        """Each parameter, singular value and direction in its own size. The rough step has half the digits, so that
        rounding grows with the squares of singular values."""
        one, other = RoundPlan.of(expected.broadcast), RoundPlan.of(announced)
        discrete = ("number", "single", "narrow", "start")
        if any(getattr(one, name) != getattr(other, name) for name in discrete):
            return APART
        figures = ("threshold", "noise", "relaxation", "step", "columns")
        strengths, rows = one.values**2, one.U.shape[0]
        return worst(
            *(of_figures(getattr(one, name), getattr(other, name)) for name in figures),
            of_figures(one.momentum, other.momentum, 1.0),
            # A weight follows from its singular value, and moves by a few times as much.
            of_figures(one.weights, other.weights, 4.0 * relative_rounding(strengths, rows) / TOLERANCE),
            of_strengths(one.values, other.values, strengths, rows),
            of_directions(one.U, other.U, strengths),
        )

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """The columns are all there, every sampled one is counted once, and UᵀZ is a sum of squares."""
        plan, sums, rounding = RoundPlan.of(consensus.broadcast), total.sums, total.rounding
        if not (np.isfinite(sums.tensor).all() and np.isfinite(sums.scalars).all()):
            return ""  # the run has diverged, and ends by that
        columns, influence, kept, sampled = sums.scalars[:SHARES]
        histogram = sums.scalars[SHARES:]
        if total.whole and unequal(columns, 1.0, rounding[1]):
            return "the sites do not have the columns that they had in the opening"
        if unequal(sampled, columns, 2.0 * rounding[1]):
            return "not every column is counted among the residuals once"
        if exceeds(-sums.scalars, 0.0, rounding[1]):
            return "a share is negative"
        if exceeds(kept, sampled, 2.0 * rounding[1]) or exceeds(histogram.sum(), sampled, 21.0 * rounding[1]):
            return "more residuals are counted than there are entries"
        if exceeds(influence, sampled * (plan.threshold / plan.noise) ** 2, (plan.threshold / plan.noise) ** 2):
            return "residuals within the threshold are larger than it"
        unit, scales = unit_and_scales(plan.values)
        gram = (plan.U.T @ sums.tensor) * (scales / unit)
        if plan.narrow:  # the others rest, and nothing was sent about them
            gram = gram[np.ix_(plan.entering, plan.entering)]
        moved = rounding[0] * np.sqrt(self._solver.rows)
        slack = SINGLE_SLACK * float(np.abs(np.diag(gram)).max(initial=0.0)) if plan.single else 0.0
        return "the sum of squares along U is negative" if indefinite(gram, moved + slack) else ""


def subspace_method(solver: SubspaceSolver) -> Method:
    """An opening, then the rounds that fit."""
    return Method(solver, (SubspaceOpening(solver, FIT), SubspaceRounds(solver)))


def _implausible_directions(plan: RoundPlan) -> str:
    lengths = np.linalg.norm(plan.U, axis=0)
    if np.abs(lengths - 1.0).max(initial=0.0) > UNIT_LENGTH:
        return "the directions of U do not have length one"
    if not is_orthonormal(plan.U[:, plan.entering]):
        return "the directions of U that enter L are not orthonormal"
    if ((plan.weights < 0.0) | (plan.weights > 1.0 + SAME)).any():
        return "a direction's weight is not between zero and one"
    return "a singular value is negative" if (plan.values < 0.0).any() else ""

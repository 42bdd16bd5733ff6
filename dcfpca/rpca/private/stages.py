"""The stages of private runs: everything follows from noisy sums and from the spec.

Stage `open` has a noisy count and a noisy histogram of lengths, from which the clip is taken. Each round after it sums
one tensor: wide in stage `sketch`, narrow in stage `fit`. There are exactly as many rounds as the spec says, since
stopping early would reveal something about the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dcfpca.errors import BadInput, BadMessage
from dcfpca.privacy.discrete_gaussian import Entropy
from dcfpca.rpca.column_blocks import block_width
from dcfpca.rpca.initial_basis import opening_basis
from dcfpca.rpca.method import Columns, Consensus, FloatArray, Layout, Outcome, Progress, TensorMessage, Total, Verdict
from dcfpca.rpca.private.cleaning import bin_length
from dcfpca.rpca.private.pooling import PooledSums, direction_notes, stated_errors
from dcfpca.rpca.private.schedule import LENGTH_BINS, PrivateSchedule, predicted_error, tensor_width
from dcfpca.rpca.private.site import PrivateFit, PrivatePlan, plan_layout
from dcfpca.rpca.private.whole_numbers import EXPONENT, check_rounding, noised, off_grid
from dcfpca.rpca.stage import QuietStage, Stage
from dcfpca.rpca.stage_checks import APART, of_directions, of_figures, of_strengths, worst
from dcfpca.rpca.stage_list import Method, StagedSite

OPEN, SKETCH, FIT = "open", "sketch", "fit"
NUMBERS = {OPEN: 0, SKETCH: 1, FIT: 2}  # of rounds, as `PrivateSchedule` counts them; all of the fit are alike
CLIP_QUANTILE = 0.25
"""Share of columns that are shorter than the clip; a low one loses little signal, and the noise grows with the clip."""
CERTAIN = 4.0
"""Bins whose count is below this many deviations of its noise count as empty."""


@dataclass(frozen=True, slots=True)
class PrivateSolver:
    """`clip` is None where the histogram of lengths decides; `fixed_rank` as in `SubspaceSolver`."""

    rows: int
    width: int
    schedule: PrivateSchedule
    conspirators: int = 0
    clip: float | None = None
    max_error: float = 1.0
    seed: int = 0
    fixed_rank: bool = True

    @property
    def reads_per_round(self) -> int:
        """All passes are made on a block."""
        return 1

    def step_flops(self, columns: int) -> float:
        """L, and two products with the round's tensor; gross entries are few."""
        return 2.0 * self.rows * (self.width + 2.0 * self.tensor_width(FIT)) * columns

    def local(self, columns: Columns) -> PrivateFit:
        """What a site that holds these columns begins with."""
        return PrivateFit(columns, self.width)

    def tensor_width(self, stage: str) -> int:
        """Columns of the tensor in a round of this stage."""
        return tensor_width(self.rows, self.width, NUMBERS[stage])

    def noised(self, stage: str, exact: FloatArray, columns: int, sites: int, entropy: Entropy) -> FloatArray:
        """What a site with `columns` columns, one of `sites`, sends in place of its exact answer.

        BadInput where sums of these columns round too much, or where no honest site would be left.
        """
        width = 1 if stage == OPEN else self.tensor_width(stage)
        check_rounding(self.rows, width, columns, max(1, min(columns, block_width(self.rows))))
        return noised(exact, self.schedule.deviation(NUMBERS[stage]), sites - self.conspirators, entropy)

    def deviation(self, stage: str, contributors: int) -> float:
        """Deviation of the noise in the opened sum of a round of this stage over so many sites."""
        return self.schedule.deviation(NUMBERS[stage]) * float(np.sqrt(self.surplus(contributors)))

    def surplus(self, contributors: int) -> float:
        """The variance of all sites' noise over that of the honest ones."""
        return contributors / max(contributors - self.conspirators, 1)


class PrivateOpening(QuietStage):
    """One round of scalars alone."""

    def __init__(self, solver: PrivateSolver) -> None:
        super().__init__(OPEN, up=Layout(0, 0, 1 + LENGTH_BINS, exponent=EXPONENT), then=SKETCH)
        self._solver = solver

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """The number of columns and a histogram of their lengths, before the noise."""
        assert isinstance(site.fit, PrivateFit)
        return site.fit.opening()

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """All of it: noise hides single columns, and merging would change by how much one can move a count."""
        return exact

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The clip, and a random U."""
        solver = self._solver
        count, lengths = float(total.sums.scalars[0]), total.sums.scalars[1:]
        surplus = solver.surplus(total.contributors)
        error = predicted_error(solver.rows, solver.width, count, solver.schedule, surplus)
        if error > solver.max_error:
            raise BadInput(
                f"with about {max(count, 0.0):.2g} columns the predicted error sin θ = {error:.2g} is above"
                f" max_error = {solver.max_error:g}",
                "raise epsilon or max_error, or lower the rank",
            )
        clip = solver.clip or _clip(lengths, solver.deviation(OPEN, total.contributors))
        U = opening_basis(solver.rows, solver.tensor_width(SKETCH), solver.seed, {})
        plan = PrivatePlan(U, clip, max(count, 1.0), 0, error, np.zeros(solver.width))
        return Consensus(consensus.round + 1, SKETCH, plan.broadcast(), PooledSums.nothing(solver.rows).memory(0))

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Noise leaves no law but that of the grid."""
        return off_grid(total)


def _clip(lengths: FloatArray, deviation: float) -> float:
    """The length that a quarter of the columns do not reach, by the bins that are surely not empty."""
    counts = np.where(lengths > CERTAIN * deviation, lengths, 0.0)
    if not counts.any():
        raise BadInput(
            "the histogram of lengths has nothing above its noise: too few columns for this budget",
            "raise epsilon, or state the clip in the spec",
        )
    place = int(np.searchsorted(np.cumsum(counts), CLIP_QUANTILE * counts.sum()))
    return bin_length(place)


class PrivateRounds(Stage):
    """The rounds of stage `name`; the final broadcast has the layout of the last round."""

    def __init__(self, solver: PrivateSolver, name: str) -> None:
        width = solver.tensor_width(name)
        up = Layout(solver.rows, width, exponent=EXPONENT)
        super().__init__(name, down=plan_layout(solver.rows, solver.width, width), up=up, then=(FIT,))
        self._solver = solver

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """Σ ỹ(ỹᵀU) in units of the clip, before the noise."""
        assert isinstance(site.fit, PrivateFit)
        return site.fit.answer(PrivatePlan.of(asked.broadcast))

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """All of it: nothing is counted."""
        return exact

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """What all noisy sums together tell."""
        solver, old = self._solver, PrivatePlan.of(consensus.broadcast)
        deviation, done = solver.deviation(self.name, total.contributors), int(consensus.memory["taken"][0]) + 1
        pooled = PooledSums.of(consensus.memory).with_round(old.U, total.sums.tensor, deviation)
        over = done >= solver.schedule.rounds
        after = self.name if over else FIT
        U, seen = pooled.subspace(solver.tensor_width(after))
        rank = solver.width if solver.fixed_rank else min(solver.width, pooled.above_noise(seen))
        errors = stated_errors(pooled.sines(seen, rank, old.columns))
        plan = replace(
            old,
            U=U,
            rank=rank,
            error=float(errors.max(initial=0.0)),
            values=old.clip * np.sqrt(pooled.strengths(U[:, : solver.width])),
            errors=errors,
        )
        progress = Progress(plan.error, rank, float("nan"), float("nan"), plan.values[:rank])
        # Columns are first cleaned without any L, which turns the sum further than its noise does where columns are
        # many. This sum only serves to find the next U and is not pooled with later ones.
        kept = PooledSums.nothing(solver.rows) if self.name == SKETCH else pooled
        memory = {} if over else kept.memory(done)
        outcome = Outcome.COMPLETED if over else None
        return Consensus(consensus.round + (not over), after, plan.broadcast(), memory, progress, outcome)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """U (m × rank) and the singular values of the cleaned and shortened data."""
        plan = PrivatePlan.of(consensus.broadcast)
        return {"U": np.ascontiguousarray(plan.entering), "singular_values": plan.values[: plan.rank]}

    def verdict(self, consensus: Consensus, features: Sequence[str]) -> Verdict | None:
        """Whether every direction stands clear of the noise, and the expected error is within the spec's limit."""
        if consensus.outcome is None:
            return None
        plan = PrivatePlan.of(consensus.broadcast)
        if plan.rank == 0:
            reason = "raise epsilon, or have more columns"
            return Verdict(False, f"No direction stands out from the noise that privacy needs: {reason}.", (reason,))
        notes = direction_notes(plan.errors[: plan.rank])
        sentence = (
            f"The noise of privacy turned the {plan.rank} directions by no more than about sin θ = {plan.error:.2g}."
        )
        if plan.error <= self._solver.max_error:
            return Verdict(True, sentence, (), notes)
        reason = f"that is above max_error = {self._solver.max_error:g}, lower the rank or raise epsilon"
        return Verdict(False, f"{sentence} Not to be trusted as it is: {reason}.", (reason,), notes)

    def plausible(self, announced: Consensus, before: Consensus | None, precision: int) -> str:
        """Directions must be orthonormal, since the sensitivity of the answer rests on it, and the clip stays.

        The count is noisy, and may be anything.
        """
        try:
            plan = PrivatePlan.of(announced.broadcast)
            earlier = None if before is None or before.stage == OPEN else PrivatePlan.of(before.broadcast)
        except (BadMessage, ValueError) as error:
            return str(error)
        if self._solver.clip is not None and plan.clip != self._solver.clip:
            return "the clip is not that of the spec"
        if earlier is not None and (plan.clip, plan.columns) != (earlier.clip, earlier.columns):
            return "the clip or the noisy count is not that of the round before"
        return "a singular value is negative" if (plan.values < 0.0).any() else ""

    def difference(self, expected: Consensus, announced: TensorMessage) -> float:
        """Each direction of L by itself, and all directions of U as the space that they span: noise leaves some of the
        others equally strong."""
        one, other = PrivatePlan.of(expected.broadcast), PrivatePlan.of(announced)
        if (one.rank, one.clip) != (other.rank, other.clip):
            return APART
        strengths, rows = one.values**2, one.U.shape[0]
        return worst(
            of_figures(one.columns, other.columns),
            of_figures(one.error, other.error, 1.0),
            of_strengths(one.values, other.values, strengths, rows),
            of_figures(one.errors, other.errors, 1.0),
            of_directions(one.entering, other.entering, strengths[: one.rank]),
            of_directions(one.U, other.U, np.ones(one.U.shape[1])),
        )

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Noise leaves no law but that of the grid."""
        return off_grid(total)


def private_method(solver: PrivateSolver) -> Method:
    """An opening, a wide first round, and the rounds that follow."""
    return Method(solver, (PrivateOpening(solver), PrivateRounds(solver, SKETCH), PrivateRounds(solver, FIT)))

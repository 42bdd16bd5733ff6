"""The aggregator's side of a private run: everything follows from noisy sums and from the spec.

Round 0 opens a count and a histogram of column lengths, from which the clip is taken; each round after it opens one
tensor. There are exactly as many rounds as the spec says, since to stop early would tell something of the data.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.privacy.discrete_gaussian import Entropy
from dcfpca.rpca.column_blocks import block_width
from dcfpca.rpca.initial_basis import opening_basis
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
from dcfpca.rpca.partitioned_step import sum_of_answers
from dcfpca.rpca.private.cleaning import bin_length
from dcfpca.rpca.private.direction_errors import direction_notes, stated_errors
from dcfpca.rpca.private.grid import EXPONENT, check_rounding, noised
from dcfpca.rpca.private.plan import PrivatePlan
from dcfpca.rpca.private.plan import broadcast_layout as _broadcast_layout
from dcfpca.rpca.private.pooling import PooledSums
from dcfpca.rpca.private.prediction import predicted_error
from dcfpca.rpca.private.schedule import LENGTH_BINS, PrivateSchedule, tensor_width
from dcfpca.rpca.private.site import PrivateSite

CLIP_QUANTILE = 0.25
"""Share of columns that are shorter than the clip; a low one loses little signal, and the noise grows with the clip."""
CERTAIN = 4.0
"""Bins with a count below so many deviations of its noise are taken for empty."""


@dataclass(frozen=True, slots=True)
class PrivateSubspaceMethod:
    """`clip` is None where the histogram of lengths decides; `fixed_rank` as in `SubspaceMethod`."""

    rows: int
    width: int
    schedule: PrivateSchedule
    conspirators: int = 0
    clip: float | None = None
    max_error: float = 1.0
    seed: int = 0
    fixed_rank: bool = True

    @property
    def opening_rounds(self) -> int:
        """The first tensor is the widest; those after it are alike."""
        return 1

    @property
    def reads_per_round(self) -> int:
        """All passes are made on a block."""
        return 1

    def step_flops(self, columns: int) -> float:
        """L, and two products with the round's tensor; gross entries are few."""
        return 2.0 * self.rows * (self.width + 2.0 * tensor_width(self.rows, self.width, 2)) * columns

    def update_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """What every site sends in this round."""
        if round == 0:
            return Layout(0, 0, ("columns", *(f"length_{place}" for place in range(LENGTH_BINS))), EXPONENT)
        return Layout(self.rows, tensor_width(self.rows, self.width, round), (), EXPONENT)

    def broadcast_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """What the aggregator sends at the start of this round."""
        return _broadcast_layout(self.rows, self.width, round)

    def begin(self) -> Consensus:
        """The consensus of round 0: nothing is known yet."""
        return Consensus(0, TensorMessage(np.zeros((0, 0)), np.zeros(0)))

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The consensus after this round's noisy sum."""
        return self._open(total) if consensus.round == 0 else self._next(consensus, total)

    def site(self, columns: Columns) -> PrivateSite:
        """The side of a participant that holds these columns."""
        return PrivateSite(columns, self.width)

    def partitioned_answer(self, partition: Partition, round: int, broadcast: TensorMessage) -> TensorMessage:
        """The parts' answers added: everything a site sends is a sum over its columns."""
        return sum_of_answers(partition, self.update_layout(round), round, broadcast)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """U (m × rank) and the singular values of the cleaned and shortened data."""
        plan = PrivatePlan.of(consensus.broadcast)
        return {"U": np.ascontiguousarray(plan.entering), "singular_values": plan.values[: plan.rank]}

    def verdict(self, consensus: Consensus) -> Verdict | None:
        """Whether every direction stands clear of the noise, and the expected error is within the spec's limit."""
        if consensus.outcome is None or consensus.round == 0:
            return None
        plan = PrivatePlan.of(consensus.broadcast)
        if plan.rank == 0:
            reason = "raise epsilon, or have more columns"
            return Verdict(False, f"No direction stands out of the noise that privacy needs: {reason}.", (reason,))
        told = direction_notes(plan.errors[: plan.rank])
        sentence = (
            f"The noise of privacy turned the {plan.rank} directions by no more than about sin θ = {plan.error:.2g}."
        )
        if plan.error <= self.max_error:
            return Verdict(True, sentence, (), told)
        reason = f"that is above max_error = {self.max_error:g}, lower the rank or raise epsilon"
        return Verdict(False, f"{sentence} Not to be trusted as it is: {reason}.", (reason,), told)

    def noised(self, round: int, exact: FloatArray, columns: int, sites: int, entropy: Entropy) -> FloatArray:
        """What a site with so many columns, one of so many sites, sends in place of its exact answer.

        BadInput where sums of so many columns round too much, or where no honest site would be left.
        """
        width = self.update_layout(round).columns or 1
        check_rounding(self.rows, width, columns, max(1, min(columns, block_width(self.rows))))
        return noised(exact, self.schedule.deviation(round), sites - self.conspirators, entropy)

    def deviation(self, round: int, contributors: int) -> float:
        """Deviation of the noise in the opened sum of a round over so many sites."""
        return self.schedule.deviation(round) * float(np.sqrt(self._surplus(contributors)))

    def _surplus(self, contributors: int) -> float:
        return contributors / max(contributors - self.conspirators, 1)

    def _open(self, total: Total) -> Consensus:
        count, lengths = float(total.sums.scalars[0]), total.sums.scalars[1:]
        error = predicted_error(self.rows, self.width, count, self.schedule, self._surplus(total.contributors))
        if error > self.max_error:
            raise BadInput(
                f"with about {max(count, 0.0):.2g} columns the predicted error sin θ = {error:.2g} is above"
                f" max_error = {self.max_error:g}",
                "raise epsilon or max_error, or lower the rank",
            )
        noise = self.deviation(0, total.contributors)
        clip = self.clip or _clip(lengths, noise)
        U = opening_basis(self.rows, tensor_width(self.rows, self.width, 1), self.seed, {})
        plan = PrivatePlan(U, clip, max(count, 1.0), 0, error, np.zeros(self.width))
        return Consensus(1, plan.broadcast(), _memory(PooledSums.nothing(self.rows)))

    def _next(self, consensus: Consensus, total: Total) -> Consensus:
        old, done = PrivatePlan.of(consensus.broadcast), consensus.round
        pooled = _pooled(consensus).with_round(old.U, total.sums.tensor, self.deviation(done, total.contributors))
        over = done >= self.schedule.rounds
        width = tensor_width(self.rows, self.width, done if over else done + 1)
        U, seen = pooled.subspace(width)
        rank = self.width if self.fixed_rank else min(self.width, pooled.above_noise(seen))
        strengths = pooled.strengths(U[:, : self.width])
        errors = stated_errors(pooled.sines(seen, rank, old.columns))
        plan = replace(
            old,
            U=U,
            rank=rank,
            error=float(errors.max(initial=0.0)),
            values=old.clip * np.sqrt(strengths),
            errors=errors,
        )
        progress = Progress(plan.error, rank, float("nan"), float("nan"), plan.values[:rank])
        outcome = Outcome.COMPLETED if over else None
        # Columns are first cleaned without any L, which turns the sum by more than its noise does where they are many.
        # It serves to find the next U, and is not pooled with the sums after it.
        memory = {} if over else _memory(PooledSums.nothing(self.rows) if done == 1 else pooled)
        return Consensus(done if over else done + 1, plan.broadcast(), memory, progress, outcome)


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


def _memory(pooled: PooledSums) -> dict[str, FloatArray]:
    return {"bases": pooled.bases, "sums": pooled.sums, "deviations": pooled.deviations}


def _pooled(consensus: Consensus) -> PooledSums:
    memory = consensus.memory
    return PooledSums(memory["bases"], memory["sums"], memory["deviations"])

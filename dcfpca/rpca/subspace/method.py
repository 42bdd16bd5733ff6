"""The aggregator's side of `subspace`: federated orthogonal iteration with firm thresholds. ALGORITHM section 2.

Every round the sites send Z = Σ Y V̂, the cleaned data times the (scaled) right factor of the last subspace. From this
sum alone the aggregator has the next subspace and the singular values of the cleaned data, and from counts of residual
sizes it has the noise. Nothing here depends on how the columns are dealt out to sites.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput
from dcfpca.rpca.kernels.block_step import HISTOGRAM_LOWEST, histogram_median
from dcfpca.rpca.method import Columns, Consensus, FloatArray, Layout, Outcome, Parcel, Partition, Progress, Total
from dcfpca.rpca.partitioned_step import sum_of_answers
from dcfpca.rpca.subspace.initial_basis import WARM, opening_basis, remembered
from dcfpca.rpca.subspace.rayleigh_ritz import NUMERICALLY_ABSENT, rayleigh_ritz, relative_change, turned_within
from dcfpca.rpca.subspace.round_plan import CoefficientStart, RoundPlan
from dcfpca.rpca.subspace.round_plan import broadcast_layout as _broadcast_layout
from dcfpca.rpca.subspace.schedule import (
    Measured,
    Movement,
    Schedule,
    accelerated,
    lowered,
    next_schedule,
    opening_schedule,
    settled,
    warm_schedule,
)
from dcfpca.rpca.subspace.settings import OPENING_LOWEST, OPENING_STEP, SubspaceSettings
from dcfpca.rpca.subspace.settings import update_layout as _update_layout
from dcfpca.rpca.subspace.site import SubspaceSite
from dcfpca.rpca.subspace.update_scaling import update_scales, update_unit
from dcfpca.rpca.thresholds import NORMAL_MEDIAN, firm_weights

MOVING = 0.1  # L moved by more than this share of itself in the last round
DOMINANT = 6.0  # a singular value this many times the median of all
HELD_ROUNDS = 12  # rounds in a row that wait for strong directions to rest; some never do
# Rounding alone makes singular values of about ε √max(m,n) σ_1; a run that goes on for long without a tolerance to stop
# it comes down to them, and they must not pass for directions.
ROUNDING = 8.0 * np.finfo(np.float64).eps


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What the aggregator knows between rounds."""

    U: FloatArray
    weights: FloatArray
    values: FloatArray
    schedule: Schedule
    change: float  # how far L moved in the last round, relatively
    quiet: int  # rounds in a row in which it hardly moved, with the thresholds settled
    narrow: int  # rounds in a row, with the next, in which only entering directions are updated
    held: int = 0  # rounds in a row in which directions were held back for stronger ones


@dataclass(frozen=True, slots=True)
class SubspaceMethod:
    """`fixed_rank`: the rank is `width`; otherwise `width` is an upper bound and the rank is found."""

    rows: int
    width: int
    rounds: int
    tolerance: float
    seed: int = 0
    settings: SubspaceSettings = field(default_factory=SubspaceSettings)
    fixed_rank: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.width <= self.rows:
            raise BadInput(f"Rank {self.width} does not fit {self.rows} rows.", f"Choose a rank from 1 to {self.rows}.")
        if self.rounds < 1 or not self.tolerance >= 0.0:
            raise BadInput("A run needs at least one round and a tolerance that is not negative.")

    def update_layout(self, round: int) -> Layout:
        """What every site sends in this round."""
        return _update_layout(self.rows, self.width, round)

    def broadcast_layout(self, round: int) -> Layout:
        """What the aggregator sends at the start of this round."""
        return _broadcast_layout(self.rows, self.width, round)

    def begin(self) -> Consensus:
        """The consensus of round 0: nothing is known yet."""
        return Consensus(0, Parcel(np.zeros((0, 0)), np.zeros(0)))

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The consensus after this round's sum."""
        if not (np.isfinite(total.parcel.tensor).all() and np.isfinite(total.parcel.scalars).all()):
            return Consensus(
                consensus.round, consensus.broadcast, consensus.memory, consensus.progress, Outcome.DIVERGED
            )
        if consensus.round == 0:
            return remembered(consensus, self._open(consensus, total))
        warm = consensus.round == 1 and WARM in consensus.memory
        return remembered(consensus, self._weighed(consensus, total) if warm else self._next(consensus, total))

    def site(self, columns: Columns) -> SubspaceSite:
        """The side of a participant that holds these columns."""
        return SubspaceSite(columns, self.rows, self.width, self.seed, self.settings)

    def partitioned_answer(self, partition: Partition, round: int, broadcast: Parcel) -> Parcel:
        """The parts' answers added: everything a site sends is a sum over its columns."""
        return sum_of_answers(partition, self.update_layout(round), round, broadcast)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """U (m × rank) and the singular values of L."""
        plan = RoundPlan.of(consensus.broadcast)
        return {
            "U": np.ascontiguousarray(plan.U[:, plan.entering]),
            "singular_values": (plan.weights * plan.values)[plan.entering],
        }

    def _open(self, opening: Consensus, total: Total) -> Consensus:
        """From the counts of entry sizes: a scale, the first threshold, and a subspace to begin with."""
        count, *sizes = total.parcel.scalars
        if self.fixed_rank and self.width > round(count):
            raise BadInput(
                f"Rank {self.width} does not fit {count:.0f} columns.", f"Choose a rank from 1 to {count:.0f}."
            )
        median = histogram_median(np.array(sizes), 1.0, OPENING_LOWEST, OPENING_STEP)
        schedule = opening_schedule(NORMAL_MEDIAN * median, count, self.width, self.settings)
        U = opening_basis(self.rows, self.width, self.seed, opening.memory)
        values = np.full(self.width, schedule.unit * np.sqrt(max(count, 1.0)))
        state = State(U, np.ones(self.width), values, schedule, change=1.0, quiet=0, narrow=0)
        start = CoefficientStart.PROJECTED if WARM in opening.memory else CoefficientStart.CARRIED
        return self._consensus(1, state, Progress(rank=self.width, noise=schedule.noise), None, start)

    def _weighed(self, consensus: Consensus, total: Total) -> Consensus:
        """After round 1 of a warm run: U stays, and how far it explains the data says where the thresholds begin.

        Under the first λ, which knows nothing of U, outliers would turn U away from what it is.
        """
        old, scalars = self._state(consensus), total.parcel.scalars
        schedule = warm_schedule(old.schedule, measure(old.schedule, scalars), self.settings)
        Z, scales = total.parcel.tensor * update_unit(old.values), update_scales(old.values)
        U, values = turned_within(old.U, Z, scales)
        weights = self._weights(values, schedule, scalars[0] * schedule.columns, stretch=1.0, moving=True)
        values = np.maximum(values, schedule.pull * np.sqrt(schedule.columns))
        return self._close(1, State(U, weights, values, schedule, change=1.0, quiet=0, narrow=0))

    def _next(self, consensus: Consensus, total: Total) -> Consensus:
        old = self._state(consensus)
        measured = measure(old.schedule, total.parcel.scalars)
        paced = self.settings.paced(min(float(self.rows), old.schedule.columns))
        settings = paced.hastened() if WARM in consensus.memory else paced
        schedule = next_schedule(old.schedule, measured, old.change, old.change < self.tolerance, settings)
        if old.held:
            schedule = replace(schedule, level=old.schedule.level, entry=old.schedule.entry)
        U, values = turned(old, total.parcel.tensor)
        stretch = old.schedule.step / old.schedule.relaxation  # momentum's step makes Y, and its noise, larger
        columns = total.parcel.scalars[0] * schedule.columns
        weights = self._weights(values, schedule, columns, stretch, old.change > MOVING)
        if old.narrow:
            weights[old.weights == 0.0] = 0.0  # nobody looked at them
        weak = self._weak(values, old, consensus.round)
        held = old.held + 1 if weights[weak].any() else 0
        weights[weak] = 0.0
        change = relative_change(old.U, old.weights * old.values, U, weights * values)
        rests = change < self.tolerance and settled(schedule, self.settings)
        quiet = old.quiet + 1 if rests and not lowered(schedule, old.schedule, self.settings) else 0
        freedom = self._freedom(int(np.count_nonzero(weights)), schedule.columns)
        schedule = accelerated(schedule, freedom, Movement(change, old.change), self.settings)
        narrow = 0 if held else self._narrow(old, weights, values, change)
        if old.narrow and not narrow:
            U = np.linalg.qr(U)[0]
        # A direction that vanished goes on as any: next round it has what any direction has of that which is not in L.
        values = np.maximum(values, schedule.pull * np.sqrt(schedule.columns))
        # V of a random U says nothing of the next one.
        start = CoefficientStart.SWEPT if consensus.round == 1 else CoefficientStart.CARRIED
        return self._close(consensus.round, State(U, weights, values, schedule, change, quiet, narrow, held), start)

    def _freedom(self, rank: int, columns: float) -> float:
        """The share of all dimensions that matrices near one of this rank, of the same rank, fill."""
        return rank * (self.rows + columns - rank) / (self.rows * max(columns, 1.0))

    def _narrow(self, old: State, weights: FloatArray, values: FloatArray, change: float) -> int:
        """How many rounds in a row, with the next, leave alone the directions that do not enter; 0 for a wide one.

        They rest where a gap in the singular values parts them from those that enter, and where the rank stands.
        """
        entering = int(np.count_nonzero(weights))
        if not 0 < entering < self.width or change < self.tolerance or old.narrow >= self.settings.narrow_rounds:
            return 0
        stands = entering == np.count_nonzero(old.weights)
        quiet = stands and (change < self.settings.narrow_below or old.narrow > 0)
        return old.narrow + 1 if quiet or self._parted(values, entering) else 0

    def _close(self, done: int, state: State, start: CoefficientStart = CoefficientStart.CARRIED) -> Consensus:
        """End the round: either over, or the next one opens, in which V begins at `start`."""
        rank = int(np.count_nonzero(state.weights))
        kept_values = (state.weights * state.values)[state.weights > 0.0]
        threshold = state.schedule.threshold(self.settings)
        progress = Progress(state.change, rank, state.schedule.noise, threshold, kept_values)
        outcome = Outcome.CONVERGED if state.quiet >= 2 else Outcome.OUT_OF_ROUNDS if done >= self.rounds else None
        return self._consensus(done if outcome else done + 1, state, progress, outcome, start)

    def _weights(
        self, values: FloatArray, schedule: Schedule, columns: float, stretch: float, moving: bool
    ) -> FloatArray:
        """d: which directions enter L, and how far.

        While λ is falling, a direction that outliers under λ could have made must wait, whether the rank is given
        or not. In the end a given rank means every direction that is numerically there, an upper bound those that
        stand out from the noise; so does a given rank while one direction dominates and L still moves, for what is
        not yet explained of that one looks like directions of its own.
        """
        noisy = not self.fixed_rank or (moving and dominated(values))
        if not noisy and settled(schedule, self.settings):
            return np.where(values > NUMERICALLY_ABSENT * values[0], 1.0, 0.0)
        bar = self.settings.rank_entry * np.sqrt(max(self.rows, columns)) * schedule.entry
        if noisy:
            bar = max(bar, self.settings.rank_noise * (np.sqrt(self.rows) + np.sqrt(columns)) * stretch * schedule.pull)
        bar = max(bar, ROUNDING * np.sqrt(max(self.rows, columns)) * values[0])
        # A cap at half the largest keeps an early overestimate from emptying L.
        weights = firm_weights(values, min(bar, values[0] / 2.0), self.settings.b)
        entering = int(np.count_nonzero(weights))
        if 0 < entering < self.width and self._parted(values, entering):
            weights[:entering] = 1.0
        return weights

    def _weak(self, values: FloatArray, old: State, round: int) -> slice:
        """The directions beyond the first gap, which must not enter yet: until the stronger ones rest, what is not yet
        explained of them looks like directions of its own, and once these are in L it stays so."""
        gaps = np.flatnonzero(self._gaps(values))
        rests = old.change <= MOVING or old.held >= HELD_ROUNDS
        if rests or not gaps.size or (self.fixed_rank and not dominated(values)):
            return slice(self.width, None)
        entered = int(np.count_nonzero(old.weights)) if round > 1 else 0
        return slice(max(int(gaps[0]) + 1, entered), None)

    def _parted(self, values: FloatArray, entering: int) -> bool:
        """Whether a gap parts so many singular values from the rest: then it is clear which are directions of L."""
        return bool(self._gaps(values)[entering - 1])

    def _gaps(self, values: FloatArray) -> NDArray[np.bool_]:
        """Behind which of the singular values a gap lies."""
        gaps: NDArray[np.bool_] = values[:-1] / self.settings.narrow_gap >= values[1:]
        return gaps

    def _consensus(
        self, number: int, state: State, progress: Progress, outcome: Outcome | None, start: CoefficientStart
    ) -> Consensus:
        schedule = state.schedule
        plan = RoundPlan(
            U=state.U,
            threshold=schedule.threshold(self.settings),
            noise=schedule.noise,
            relaxation=schedule.relaxation,
            step=schedule.step,
            momentum=schedule.momentum,
            single=schedule.single > 0.0,
            narrow=state.narrow > 0,
            start=start,
            columns=schedule.columns,
            weights=state.weights,
            values=state.values,
        )
        memory = {
            "schedule": np.array(astuple(schedule)),
            "rest": np.array([state.change, state.quiet, state.narrow, state.held]),
        }
        return Consensus(number, plan.broadcast(), memory, progress, outcome)

    def _state(self, consensus: Consensus) -> State:
        plan = RoundPlan.of(consensus.broadcast)
        schedule = Schedule(*consensus.memory["schedule"])
        change, *counts = consensus.memory["rest"]
        return State(plan.U, plan.weights, plan.values, schedule, float(change), *map(int, counts))


def dominated(values: FloatArray) -> bool:
    """Whether the largest singular value stands far above most."""
    return bool(values[0] > DOMINANT * float(np.median(values)))


def measure(schedule: Schedule, scalars: FloatArray) -> Measured:
    """Read the sums of counts of a round that was played under this schedule."""
    pull, kept, sampled = scalars[1:4]
    if sampled <= 0.0:
        return Measured(0.0, 0.0, 1.0)
    noise = NORMAL_MEDIAN * histogram_median(scalars[4:], schedule.noise, HISTOGRAM_LOWEST)
    deviation = schedule.relaxation * schedule.noise * np.sqrt(max(pull, 0.0) / sampled)
    return Measured(noise, float(deviation), kept / sampled)


def turned(old: State, tensor: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The next U and singular values; after a narrow round, those of the entering directions beside the old rest."""
    unit, scales, rough = update_unit(old.values), update_scales(old.values), old.schedule.single > 0.0
    if not old.narrow:
        return rayleigh_ritz(old.U, tensor * unit, scales, rough)
    entering = old.weights > 0.0
    U, values = old.U.copy(), old.values.copy()
    Z = tensor[:, entering] * unit
    U[:, entering], values[entering] = rayleigh_ritz(old.U[:, entering], Z, scales[entering], rough)
    return U, values

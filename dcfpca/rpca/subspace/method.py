"""The aggregator's side of `subspace`: federated orthogonal iteration with firm thresholds (docs/solver.md).

Every round the sites send Z = Σ Y V̂, the cleaned data times the (scaled) right factor of the last subspace. From this
sum alone the aggregator has the next subspace and the singular values of the cleaned data, and from counts of residual
sizes it has the noise. Nothing here depends on how the columns are dealt out to sites.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.initial_basis import WARM, keep_warm_mark, opening_basis
from dcfpca.rpca.kernels.step_sums import histogram_median
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
from dcfpca.rpca.subspace.heavy_ball import accelerated, tangent_share
from dcfpca.rpca.subspace.rank_rules import MOVING, RankRules
from dcfpca.rpca.subspace.rayleigh_ritz import rayleigh_ritz, relative_change, rotate_to_principal
from dcfpca.rpca.subspace.round_plan import CoefficientStart, RoundPlan
from dcfpca.rpca.subspace.round_plan import broadcast_layout as _broadcast_layout
from dcfpca.rpca.subspace.schedule import (
    Measured,
    Movement,
    Schedule,
    first_schedule,
    next_schedule,
    opening_schedule,
    warm_schedule,
)
from dcfpca.rpca.subspace.settings import OPENING_LOWEST, OPENING_STEP, SubspaceSettings
from dcfpca.rpca.subspace.settings import update_layout as _update_layout
from dcfpca.rpca.subspace.site import SKETCHING_ROUNDS, SubspaceSite
from dcfpca.rpca.subspace.state import State
from dcfpca.rpca.subspace.stopping import QUIET_ROUNDS, final_thresholds, next_round_explains, quiet_rounds
from dcfpca.rpca.subspace.update_scaling import unit_and_scales
from dcfpca.rpca.thresholds import NORMAL_MEDIAN


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

    @property
    def opening_rounds(self) -> int:
        """Rounds whose subspace is only a sketch take one pass."""
        return SKETCHING_ROUNDS

    @property
    def reads_per_round(self) -> int:
        """All passes are made on a block while it is in cache."""
        return 1

    def step_flops(self, columns: int) -> float:
        """A pass forms U Vᵀ and ψ(R)ᵀU; the update is one more product."""
        return 2.0 * self.rows * self.width * columns * (2 * self.settings.passes + 1)

    def update_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """What every site sends in this round."""
        return _update_layout(self.rows, self.width, round)

    def broadcast_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """What the aggregator sends at the start of this round."""
        return _broadcast_layout(self.rows, self.width, round)

    def begin(self) -> Consensus:
        """The consensus of round 0: nothing is known yet."""
        return Consensus(0, TensorMessage(np.zeros((0, 0)), np.zeros(0)))

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The consensus after this round's sum."""
        if not (np.isfinite(total.sums.tensor).all() and np.isfinite(total.sums.scalars).all()):
            return Consensus(
                consensus.round, consensus.broadcast, consensus.memory, consensus.progress, Outcome.DIVERGED
            )
        if consensus.round == 0:
            return keep_warm_mark(consensus, self._open(consensus, total))
        warm = consensus.round == 1 and WARM in consensus.memory
        return keep_warm_mark(consensus, self._hold_against(consensus, total) if warm else self._next(consensus, total))

    def site(self, columns: Columns) -> SubspaceSite:
        """The side of a participant that holds these columns."""
        return SubspaceSite(columns, self.rows, self.width, self.seed, self.settings)

    def partitioned_answer(self, partition: Partition, round: int, broadcast: TensorMessage) -> TensorMessage:
        """The parts' answers added: everything a site sends is a sum over its columns."""
        return sum_of_answers(partition, self.update_layout(round), round, broadcast)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """U (m × rank) and the singular values of L."""
        plan = RoundPlan.of(consensus.broadcast)
        return {
            "U": np.ascontiguousarray(plan.U[:, plan.entering]),
            "singular_values": (plan.weights * plan.values)[plan.entering],
        }

    def verdict(self, consensus: Consensus) -> Verdict | None:
        """None: the fit alone does not tell; `StagedMethod` adds the rounds that do."""
        return None

    def _open(self, opening: Consensus, total: Total) -> Consensus:
        """From the counts of entry sizes: a scale, the first threshold, and a subspace to begin with."""
        count, *sizes = total.sums.scalars
        if self.fixed_rank and self.width > round(count):
            raise BadInput(
                f"Rank {self.width} does not fit {count:.0f} columns.", f"Choose a rank from 1 to {count:.0f}."
            )
        median = histogram_median(np.array(sizes), 1.0, OPENING_LOWEST, OPENING_STEP)
        schedule = opening_schedule(NORMAL_MEDIAN * median, count, self.width, self.settings)
        U = opening_basis(self.rows, self.width, self.seed, opening.memory)
        values = np.full(self.width, schedule.unit * np.sqrt(max(count, 1.0)))
        plan_start = CoefficientStart.PROJECTED if WARM in opening.memory else CoefficientStart.CARRIED
        state, progress = (
            State(U, np.ones(self.width), values, schedule),
            Progress(rank=self.width, noise=schedule.noise),
        )
        return Consensus(1, state.plan(plan_start, self.settings).broadcast(), state.memory(), progress)

    def _hold_against(self, consensus: Consensus, total: Total) -> Consensus:
        """After round 1 of a warm run: U stays, and how far it explains the data says where the thresholds begin.

        Under the first λ, which knows nothing of U, outliers would turn U away from what it is.
        """
        old, scalars = State.of(consensus), total.sums.scalars
        schedule = warm_schedule(old.schedule, Measured.of(old.schedule, scalars), self.settings)
        unit, scales = unit_and_scales(old.values)
        U, values = rotate_to_principal(old.U, total.sums.tensor * unit, scales)
        weights = self._rules.weights(values, schedule, scalars[0] * schedule.columns, stretch=1.0, moving=True)
        return self._close(1, State(U, weights, _kept_alive(values, schedule), schedule))

    def _next(self, consensus: Consensus, total: Total) -> Consensus:
        """The state after an ordinary round: thresholds, then the subspace, then what of it enters L, then the pace."""
        old, sums = State.of(consensus), total.sums
        schedule = self._lower_thresholds(consensus, old, sums.scalars)
        U, values = next_subspace(old, sums.tensor)
        weights, held = self._weigh(consensus.round, old, values, schedule, sums.scalars[0] * schedule.columns)
        change = relative_change(old.U, old.weights * old.values, U, weights * values)
        at_rest = change < self.tolerance
        narrow = 0 if held or at_rest else self._rules.narrow_rounds(old, weights, values, change)
        tangent = tangent_share(int(np.count_nonzero(weights)), self.rows, schedule.columns)
        state = State(
            U=np.linalg.qr(U)[0] if old.narrow and not narrow else U,  # what rested is no longer orthogonal to the rest
            weights=weights,
            values=_kept_alive(values, schedule),
            schedule=accelerated(schedule, tangent, change, old.change, self.settings),
            change=change,
            quiet=self._quiet_rounds(old, schedule, change),
            narrow=narrow,
            held=held,
        )
        # V of a random U says nothing of the next one.
        start = CoefficientStart.SWEPT if consensus.round == 1 else CoefficientStart.CARRIED
        return self._close(consensus.round, state, start)

    def _quiet_rounds(self, old: State, schedule: Schedule, change: float) -> int:
        """Rounds in a row in which L was at rest; all that are needed, if the next round is sure to find it so."""
        if next_round_explains(change, old.change, schedule, old.schedule, self.tolerance):
            return QUIET_ROUNDS
        at_rest = change < self.tolerance
        return quiet_rounds(old.quiet, at_rest, schedule, old.schedule, self.settings, self.tolerance)

    def _lower_thresholds(self, consensus: Consensus, old: State, scalars: FloatArray) -> Schedule:
        """The schedule after this round. While directions are held back, λ waits with them."""
        cautious = self.settings.adjusted_for_size(min(float(self.rows), old.schedule.columns))
        settings = cautious.for_warm_start() if WARM in consensus.memory else cautious
        if consensus.round == 1:
            return first_schedule(old.schedule, scalars, settings)
        movement = Movement(old.change, at_rest=old.change < self.tolerance)
        schedule = next_schedule(old.schedule, Measured.of(old.schedule, scalars), movement, settings)
        return replace(schedule, level=old.schedule.level, entry=old.schedule.entry) if old.held else schedule

    def _weigh(
        self, round: int, old: State, values: FloatArray, schedule: Schedule, columns: float
    ) -> tuple[FloatArray, int]:
        """d, and for how many rounds in a row directions that would have entered have now been held back."""
        stretch = old.schedule.step / old.schedule.relaxation
        weights = self._rules.weights(values, schedule, columns, stretch, moving=old.change > MOVING)
        if old.narrow:
            weights[old.weights == 0.0] = 0.0  # they rested: their singular values are those of an earlier round
        weak = self._rules.deferred_directions(values, old, round)
        held = old.held + 1 if weights[weak].any() else 0
        weights[weak] = 0.0
        return weights, held

    @property
    def _rules(self) -> RankRules:
        return RankRules(self.rows, self.width, self.fixed_rank, self.settings)

    def _close(self, done: int, state: State, start: CoefficientStart = CoefficientStart.CARRIED) -> Consensus:
        """End the round: either the run is over, or the next round opens, in which V begins at `start`."""
        if state.quiet >= QUIET_ROUNDS:
            state = replace(state, schedule=final_thresholds(state.schedule, self.settings, self.tolerance))
        rank = int(np.count_nonzero(state.weights))
        kept_values = (state.weights * state.values)[state.weights > 0.0]
        plan = state.plan(start, self.settings)
        progress = Progress(state.change, rank, state.schedule.noise, plan.threshold, kept_values)
        if state.quiet >= QUIET_ROUNDS:
            outcome: Outcome | None = Outcome.CONVERGED
        else:
            outcome = Outcome.OUT_OF_ROUNDS if done >= self.rounds else None
        return Consensus(done if outcome else done + 1, plan.broadcast(), state.memory(), progress, outcome)


def next_subspace(old: State, tensor: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The next U and singular values; after a narrow round, those of the entering directions beside the old rest."""
    (unit, scales), rough = unit_and_scales(old.values), old.schedule.single > 0.0
    if not old.narrow:
        return rayleigh_ritz(old.U, tensor * unit, scales, rough)
    entering = old.weights > 0.0
    U, values = old.U.copy(), old.values.copy()
    Z = tensor[:, entering] * unit
    U[:, entering], values[entering] = rayleigh_ritz(old.U[:, entering], Z, scales[entering], rough)
    return U, values


def _kept_alive(values: FloatArray, schedule: Schedule) -> FloatArray:
    """The scales of the next update: a direction that vanished goes on with its share of what is not in L."""
    scales: FloatArray = np.maximum(values, schedule.influence * np.sqrt(schedule.columns))
    return scales

"""The aggregator's side of a run with closing rounds, around a method that fits (docs/solver.md).

The inner method fits while a few entries are hidden. Where the data turns out not to be low-rank plus sparse exactly,
refinement rounds find the noise of every feature and the subspace under it; a validation round tells how well each rank
predicts the hidden entries, and with it the rank; further refinement rounds take up all entries; and a null round gives
everybody the pooled distribution of residuals that flags and scores are judged by. Everything is a sum over columns.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from dcfpca.rpca.method import (
    Columns,
    Consensus,
    FloatArray,
    Layout,
    Method,
    Outcome,
    Partition,
    Progress,
    Stage,
    TensorMessage,
    Total,
    Verdict,
)
from dcfpca.rpca.partitioned_step import sum_of_answers
from dcfpca.rpca.refinement.closing_plan import FEATURE_COLUMNS, VERDICT, ClosingPlan, FitEnding, closing_layout
from dcfpca.rpca.refinement.closing_sums import RefinementTotals
from dcfpca.rpca.refinement.closing_sums import update_layout as closing_update_layout
from dcfpca.rpca.refinement.handover import is_exact, stalled
from dcfpca.rpca.refinement.hidden_partition import HiddenPartition
from dcfpca.rpca.refinement.limits import BOUND_ROUNDS, MOST_ROUNDS
from dcfpca.rpca.refinement.noise_scale import fit_noise, marginals
from dcfpca.rpca.refinement.null import distance_scale, flag_cut, null_scale
from dcfpca.rpca.refinement.rank_selection import RankCurve, ranks_tried
from dcfpca.rpca.refinement.row_step import leverage_of, row_step
from dcfpca.rpca.refinement.site import StagedSite
from dcfpca.rpca.refinement.verdict import figures_of, verdict_of

SCALING_ROUNDS = 4  # of those at the chosen rank, in which the noise is still measured; then it is fixed
LEAST_SPREAD = 1e-3  # of the largest: of a feature that is not in L
REST = 0.03  # L moves by less than this share of the noise …
REST_OF_ERROR = 0.15  # … or of the statistical error of L
HISTORY, CLOSING, CURVE = "staged/noise", "staged/closing", "staged/curve"


@dataclass(frozen=True, slots=True)
class StagedMethod:
    """`inner` fits; `refines` says whether its fit may be refined, `fixed_rank` whether its width is the rank."""

    inner: Method
    rows: int
    width: int
    fixed_rank: bool = True
    refines: bool = True
    seed: int = 0
    hidden_share: float = 0.03
    rate: float = 0.01  # false discovery rate of flags
    features: tuple[str, ...] = ()  # names for the verdict; numbers where there are none

    @property
    def opening_rounds(self) -> int:
        """Those of the inner method."""
        return self.inner.opening_rounds

    @property
    def reads_per_round(self) -> int:
        """As often as the inner method; a closing round reads once."""
        return self.inner.reads_per_round

    def step_flops(self, columns: int) -> float:
        """Of the inner method's rounds."""
        return self.inner.step_flops(columns)

    def update_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """What every site sends in this round of this stage."""
        if stage is Stage.FIT:
            return self.inner.update_layout(round, stage)
        return closing_update_layout(self.rows, self.width, stage)

    def broadcast_layout(self, round: int, stage: Stage = Stage.FIT) -> Layout:
        """What the aggregator sends at the start of this round of this stage."""
        fit = self.inner.broadcast_layout(max(round, 1) if stage is not Stage.FIT else round)
        return fit if stage is Stage.FIT else closing_layout(self.rows, self.width, fit)

    def begin(self) -> Consensus:
        """The consensus of round 0."""
        return self.inner.begin()

    def site(self, columns: Columns) -> StagedSite:
        """The side of a participant that holds these columns."""
        return StagedSite(self.inner, columns, self.width, self.hidden_share, self.seed)

    def partitioned_answer(self, partition: Partition, round: int, broadcast: TensorMessage) -> TensorMessage:
        """What the inner method answers over parts with hidden entries, then the parts' closing sums added."""
        if broadcast.tensor.shape[1] != self.width + len(FEATURE_COLUMNS):
            hidden = HiddenPartition.of(partition, self.hidden_share, self.seed)
            return self.inner.partitioned_answer(hidden, round, broadcast)
        layout = self.update_layout(round, ClosingPlan.of(broadcast).stage)
        return sum_of_answers(partition, layout, round, broadcast)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The inner model; after a refinement the centre, U and null of it. Empty keys where nothing was found."""
        if consensus.stage is Stage.FIT:
            return self.inner.model(consensus)
        plan = ClosingPlan.of(consensus.broadcast)
        features = {name: getattr(plan, name) for name in FEATURE_COLUMNS}
        curve = {CURVE.rpartition("/")[2]: consensus.memory.get(CURVE, np.zeros((0, 3)))}
        if plan.ending is not FitEnding.REFINED:
            inside = replace(consensus, broadcast=plan.fit, stage=Stage.FIT)
            return self.inner.model(inside) | features | curve | {"null": plan.broadcast().scalars}
        kept = plan.subspace
        values = np.sqrt(kept.variance * plan.columns)
        return {"U": kept.U, "singular_values": values} | features | curve | {"variance": kept.variance}

    def verdict(self, consensus: Consensus) -> Verdict | None:
        """Whether the answer can be trusted, once the closing rounds are held."""
        if consensus.stage is Stage.FIT or consensus.outcome is None:
            return None
        bound = None if self.fixed_rank else self.width
        return verdict_of(ClosingPlan.of(consensus.broadcast), consensus.outcome, bound, self.features)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The consensus after this round's sum."""
        if consensus.stage is Stage.FIT:
            return self._fit(consensus, total)
        if not (np.isfinite(total.sums.tensor).all() and np.isfinite(total.sums.scalars).all()):
            return replace(consensus, outcome=Outcome.DIVERGED)
        plan = ClosingPlan.of(consensus.broadcast)
        match consensus.stage:
            case Stage.REFINE:
                return self._refine(consensus, plan, RefinementTotals.of(plan, total.sums))
            case Stage.VALIDATE:
                return self._select(consensus, plan, total.sums.scalars * plan.columns)
            case _:
                return self._end(consensus, plan, total.sums)

    def _fit(self, consensus: Consensus, total: Total) -> Consensus:
        after = self.inner.advance(consensus, total)
        history = np.append(consensus.memory.get(HISTORY, np.zeros(0)), after.progress.noise)
        columns = total.sums.scalars[0] if consensus.round == 0 else consensus.memory[CLOSING][0]
        notes = {HISTORY: history, CLOSING: np.array([columns, 0.0, 0.0, 0.0])}
        after = replace(after, memory={**after.memory, **notes})
        if after.outcome is Outcome.DIVERGED:
            return after
        over = self.refines and stalled(history, self.width, min(float(self.rows), float(columns)))
        return self._hand_over(after, history) if over or after.outcome is not None else after

    def _hand_over(self, fitted: Consensus, history: FloatArray) -> Consensus:
        """Begin the closing rounds at what the fit has."""
        columns, limited = float(fitted.memory[CLOSING][0]), fitted.outcome is Outcome.OUT_OF_ROUNDS
        exact = fitted.outcome is Outcome.CONVERGED and is_exact(history)
        ending = FitEnding.KEPT if not self.refines else FitEnding.EXACT if exact else FitEnding.REFINED
        plan = opening_plan(fitted, history, columns, ending)
        counters = np.array([columns, 0.0, 0.0, float(limited)])
        round = fitted.round + 1 if fitted.outcome is not None else fitted.round
        return Consensus(
            round, plan.broadcast(), {**fitted.memory, CLOSING: counters}, fitted.progress, None, plan.stage
        )

    def _refine(self, consensus: Consensus, plan: ClosingPlan, totals: RefinementTotals) -> Consensus:
        columns, done, final, limited = consensus.memory[CLOSING]
        asked = plan
        done, measuring = done + 1, not final or done < SCALING_ROUNDS
        subspace, moved = row_step(plan.subspace, totals.rows, plan.noise)
        U, variance = plan.U.copy(), plan.variance.copy()
        U[:, : plan.rank], variance[: plan.rank] = subspace.U, subspace.variance
        plan = replace(plan, U=U, variance=variance, centre=subspace.centre, fresh=False)
        if measuring:
            found = marginals(totals.above, totals.below, plan.median, plan.spread)
            noise = fit_noise(
                totals.residuals, plan.noise, found.spread, leverage_of(asked.subspace, asked.model.ridge)
            )
            plan = replace(plan, noise=noise, **asdict(found))
        rests = bool(final) and not measuring and moved < self._rest(plan)
        spent = bool(final) and done >= MOST_ROUNDS
        if rests or spent or (not final and done >= BOUND_ROUNDS):
            plan = replace(plan, stage=Stage.NULL if final else Stage.VALIDATE, hiding=False)
        counters = np.array([columns, done, final, float(bool(limited) or (spent and not rests))])
        return self._next(consensus, plan, counters, moved)

    def _rest(self, plan: ClosingPlan) -> float:
        """How little L must move: a share of the noise, or of the error that any estimate of this rank has."""
        freedom = plan.rank * (self.rows + plan.columns) / (self.rows * plan.columns)
        return max(REST, REST_OF_ERROR * float(np.sqrt(freedom)))

    def _select(self, consensus: Consensus, plan: ClosingPlan, sums: FloatArray) -> Consensus:
        curve = RankCurve.of(ranks_tried(self.width), sums)
        columns, _, _, limited = consensus.memory[CLOSING]
        told = curve if plan.ending is FitEnding.REFINED else curve.of_one(plan.rank)
        table = np.column_stack([told.ranks, told.error, told.standard_error])
        plan = _predicting(replace(plan, stage=Stage.NULL, hiding=False), curve.predicted(plan.rank))
        if plan.ending is FitEnding.REFINED:
            plan = self._at_rank(plan, self.width if self.fixed_rank or sums[0] <= 0.0 else curve.chosen(), curve)
        kept = replace(consensus, memory={**consensus.memory, CURVE: table})
        return self._next(kept, plan, np.array([columns, 0.0, 1.0, limited]), consensus.progress.change)

    def _at_rank(self, plan: ClosingPlan, rank: int, curve: RankCurve) -> ClosingPlan:
        plan = _predicting(plan, curve.predicted(rank))
        if rank == 0:
            return replace(plan, rank=0, centre=plan.median, noise=plan.spread, stage=Stage.NULL)
        return replace(plan, rank=rank, stage=Stage.REFINE, fresh=True)

    def _end(self, consensus: Consensus, plan: ClosingPlan, sums: TensorMessage) -> Consensus:
        counts, distances = np.rint(sums.tensor * plan.columns), np.rint(sums.scalars[4:] * plan.columns)
        scale = null_scale(counts, plan.noise, plan.spread, plan.one_value)
        plan = replace(
            plan,
            null_scale=scale,
            cut=flag_cut(counts, plan.noise, scale, self.rate),
            distance_scale=distance_scale(distances, float(max(plan.rank, 1)), plan.rank),
        )
        plan = replace(plan, verdict=figures_of(plan, counts, sums.scalars[:4] * plan.columns))
        limited = consensus.memory[CLOSING][3] > 0.0
        outcome = Outcome.OUT_OF_ROUNDS if limited else Outcome.CONVERGED
        return replace(consensus, broadcast=plan.broadcast(), outcome=outcome)

    def _next(self, consensus: Consensus, plan: ClosingPlan, counters: FloatArray, moved: float) -> Consensus:
        kept = plan.subspace
        progress = Progress(
            moved, plan.rank, float(np.median(plan.noise)), float("nan"), np.sqrt(kept.variance * plan.columns)
        )
        return Consensus(
            consensus.round + 1,
            plan.broadcast(),
            {**consensus.memory, CLOSING: counters},
            progress,
            None,
            plan.stage,
        )


def _predicting(plan: ClosingPlan, share: float) -> ClosingPlan:
    """The plan with this figure in its verdict; the figures of the given plan belong to a broadcast and stay."""
    figures = plan.verdict.copy()
    figures[VERDICT.index("predicted")] = share
    return replace(plan, verdict=figures)


def opening_plan(fitted: Consensus, history: FloatArray, columns: float, ending: FitEnding) -> ClosingPlan:
    """The first plan of the closing rounds, from the last consensus of the fit."""
    U, values = fitted.broadcast.tensor, fitted.progress.singular_values
    rows, width = U.shape
    variance = np.zeros(width)
    variance[: min(values.size, width)] = values[:width] ** 2 / max(columns, 1.0)
    tiny = np.finfo(np.float64).tiny
    unit = float(history[0]) if np.isfinite(history[0]) else 1.0
    refined = ending is FitEnding.REFINED
    if refined:
        U = np.linalg.qr(U)[0]
        variance = np.maximum(variance, float(history[-1]) ** 2)
        spread = np.full(rows, unit)
        noise = np.full(rows, float(history[-1]))
    else:
        basis = np.linalg.svd(U, full_matrices=False)
        spread = np.sqrt((basis[0] ** 2) @ variance)
        spread = np.maximum(spread, max(LEAST_SPREAD * float(spread.max(initial=0.0)), tiny))
        noise = np.maximum(
            np.full(rows, float(history[-1])) if ending is FitEnding.EXACT else spread / 32.0, 1e-12 * spread
        )
    return ClosingPlan(
        stage=Stage.REFINE if refined else Stage.VALIDATE,
        ending=ending,
        hiding=True,
        fresh=True,
        rank=width if refined else int(values.size),
        columns=columns,
        U=U,
        variance=variance,
        centre=np.zeros(rows),
        noise=np.maximum(noise, tiny),
        median=np.zeros(rows),
        spread=spread,
        reach=8.0 * spread,
        one_value=np.zeros(rows),
        two_values=np.zeros(rows),
        null_scale=np.ones(rows),
        cut=0.0,
        distance_scale=1.0,
        verdict=np.zeros(len(VERDICT)),
        fit=TensorMessage(U, fitted.broadcast.scalars),
    )

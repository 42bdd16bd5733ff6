"""Stage `null`: counts of the residuals' sizes, by which everybody flags and scores, and the verdict on the run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import TAIL_RANKS, Calibration
from dcfpca.rpca.calibration.empirical_null import SIZE_BINS, fit_null, pooled, units_by_side
from dcfpca.rpca.calibration.normal_scores import SCORES
from dcfpca.rpca.method import Consensus, FloatArray, Layout, Outcome, TensorMessage, Total
from dcfpca.rpca.refinement.closing_plan import CHECK, NULL, ClosingPlan, FitEnding
from dcfpca.rpca.refinement.closing_stage import COUNTERS, ClosingStage, results
from dcfpca.rpca.refinement.identifiability import OUTLYING
from dcfpca.rpca.refinement.noise_scale import DISTANCE_BINS, count_above, count_sizes, distance_scale
from dcfpca.rpca.refinement.scoring import expect_entries, squared_distance
from dcfpca.rpca.refinement.verdict import FlagCounts, figures_of
from dcfpca.rpca.scaling import ENTRIES
from dcfpca.rpca.stage import Stage
from dcfpca.rpca.stage_checks import broken_count, exceeds, unequal
from dcfpca.rpca.stage_list import StagedSite

COUNTS = 4  # scalars before the distances: columns, entries of L out of range, entries, odd columns
ODD_SHARE = 0.5  # a column with more of its entries beyond the shoulder of the noise is not explained
LOCAL_OF_RATE = 20.0  # the local false discovery rate at the cut, over the rate that a spec states of the list
LEAST_TOLD = 0.2  # of the features have more than few values: else all tell the null
NEVER = 1e140  # a size that no entry has, and a broadcast can hold: infinite ones are refused
FAR = 2.0  # an entry of L further than so many reaches from its feature's median is out of range


class Null(ClosingStage):
    """The last round, but for the check of a run whose entries are judged by their whole covariance."""

    def __init__(self, fit: Stage, width: int, bound: int | None, rate: float) -> None:
        up = Layout(fit.down.rows, 2 * SIZE_BINS.count, COUNTS + DISTANCE_BINS.count)
        super().__init__(NULL, fit, width, up, (CHECK,), bound)
        self._local = min(LOCAL_OF_RATE * rate, 0.5)

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """Counts of deviations per feature and side, and of distances within the subspace."""
        plan, total = ClosingPlan.of(asked.broadcast), np.zeros(self.up.size)
        for M, block in results(site, plan, hiding=False):
            z = expect_entries(plan, M, block.L).z
            total += null_update(plan, M, block.L, z, squared_distance(plan, block.V)).flat()
        return TensorMessage.unflatten(self.up, total)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The null, and with it the end of the run or its last round."""
        plan, sums = ClosingPlan.of(consensus.broadcast), total.sums
        assert plan.calibration is not None
        if not (np.isfinite(sums.tensor).all() and np.isfinite(sums.scalars).all()):
            return replace(consensus, outcome=Outcome.DIVERGED)
        distances = np.rint(sums.scalars[COUNTS:] * plan.columns)
        sides = np.split(np.rint(sums.tensor * plan.columns), 2, axis=1)
        found = with_null(plan.calibration, sides[0], sides[1], plan.few, self._local)
        plan = replace(
            plan,
            calibration=found,
            null_scale=typical_deviation(plan, found),
            cut=found.cut,
            distance_scale=distance_scale(distances, float(max(plan.rank, 1)), plan.rank),
        )
        plan = replace(
            plan, verdict=figures_of(plan, flagged_counts(found, *sides), sums.scalars[:COUNTS] * plan.columns)
        )
        if plan.ending is FitEnding.REFINED and found.factor.shape[1]:
            counters = consensus.memory[COUNTERS]
            return self.next_round(consensus, CHECK, plan, counters.tolist(), consensus.progress.change)
        outcome = Outcome.OUT_OF_ROUNDS if consensus.memory[COUNTERS][3] > 0.0 else Outcome.CONVERGED
        return replace(consensus, broadcast=plan.broadcast(), outcome=outcome)

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """A feature's counts add up to its entries, at most one a column; distances and odd ones are of columns."""
        n, sums = ClosingPlan.of(consensus.broadcast).columns, total.sums
        if not (np.isfinite(sums.tensor).all() and np.isfinite(sums.scalars).all()):
            return ""  # the run has diverged, and ends by that
        tensor_rounding, rounding = (bound * n for bound in total.rounding)
        columns, far, entries, odd = sums.scalars[:COUNTS] * n
        distances, counts = sums.scalars[COUNTS:] * n, sums.tensor * n
        if reason := self.changed_columns(columns / n, total):
            return reason
        if reason := broken_count(counts, tensor_rounding, what="a count of residuals"):
            return reason
        if reason := broken_count(np.append(distances, odd), rounding, columns + rounding, "a count of columns"):
            return reason
        by_feature, summed = counts.sum(axis=1), 2 * SIZE_BINS.count * tensor_rounding
        if exceeds(by_feature, columns, summed + rounding):
            return "a feature has more entries than there are columns"
        if unequal(by_feature.mean(), entries, summed + rounding):
            return "the counts of residuals do not add up to the entries"
        known = consensus.memory.get(ENTRIES)
        if known is not None and total.whole and unequal(by_feature, known, summed):
            return "the counts of a feature do not add up to its entries in earlier rounds"
        if unequal(distances.sum(), columns, (1.0 + DISTANCE_BINS.count) * rounding):
            return "the distances are not those of all columns"
        return "more of L is out of range than there is of it" if exceeds(far, columns, 2.0 * rounding) else ""


def null_update(plan: ClosingPlan, M: FloatArray, L: FloatArray, z: FloatArray, distance: FloatArray) -> TensorMessage:
    """The sums of the null round over these columns."""
    one = np.ones(len(M))
    sides = np.where(z > 0.0, z, np.nan), np.where(z > 0.0, np.nan, -z)
    counts = np.column_stack([count_sizes(side, one, SIZE_BINS) for side in sides])
    seen = np.count_nonzero(~np.isnan(M), axis=0)
    beyond = np.count_nonzero(np.abs(z) > 5.0, axis=0)
    odd = np.count_nonzero(beyond > ODD_SHARE * np.maximum(seen, 1))
    far = np.count_nonzero(np.abs(L - plan.median[:, None]) > FAR * plan.reach[:, None]) / M.shape[0]
    head = [M.shape[1], far, float(seen.sum()) / M.shape[0], odd]
    distances = count_sizes(distance[None, :], np.array([float(max(plan.rank, 1))]), DISTANCE_BINS)[0]
    return TensorMessage(counts / plan.columns, np.concatenate([head, distances]) / plan.columns)


def with_null(
    known: Calibration, above: FloatArray, below: FloatArray, few: NDArray[np.bool_], local: float
) -> Calibration:
    """The calibration with units, null and tails from the counts of deviations on both sides."""
    sides = above, below
    units = [units_by_side(counts, few) for counts in sides]
    # Features of few values have tails of their own, and say nothing of those of others.
    told = ~few if np.mean(~few) >= LEAST_TOLD else np.ones_like(few)
    total = sum(pooled(counts[told], unit[told]) for counts, unit in zip(sides, units, strict=True))
    null = fit_null(np.asarray(total), local)
    rows = range(len(few))
    own = [[pooled(counts[[k]], unit[[k]]) for counts, unit in zip(sides, units, strict=True)] for k in rows]
    return replace(
        known,
        above=units[0],
        below=units[1],
        tails=tail_sizes(np.sum(own, axis=1)),
        freedom=null.freedom,
        unit=null.unit,
        wrong=null.wrong,
        cut=null.cut,
    )


def tail_sizes(counts: FloatArray) -> FloatArray:
    """Sizes that at most so many (TAIL_RANKS) entries of each feature exceed, from its counts in its units."""
    beyond = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    edges = np.concatenate([[0.0], SIZE_BINS.edges, [NEVER]])
    few = [np.column_stack([np.rint(beyond) <= rank, np.ones(len(counts))]) for rank in TAIL_RANKS]
    return np.column_stack([edges[np.argmax(which, axis=1)] for which in few])


def flagged_counts(found: Calibration, above: FloatArray, below: FloatArray) -> FlagCounts:
    """Of the counts of deviations on both sides, how many entries of each feature are flagged."""
    one = np.ones(len(above))
    sides = (above, found.above), (below, found.below)
    flagged = [count_above(counts, one, found.cut * unit, SIZE_BINS) for counts, unit in sides]
    both = above + below
    return FlagCounts(np.sum(flagged, axis=0), count_above(both, one, OUTLYING * one, SIZE_BINS), both.sum(axis=1))


def typical_deviation(plan: ClosingPlan, found: Calibration) -> FloatArray:
    """How far off entries of each feature typically are, in the data's units."""
    unit = 0.5 * (found.above + found.below) * found.unit
    if plan.ending is not FitEnding.REFINED or not found.factor.shape[1]:
        return unit * plan.noise
    F, own = found.factor, found.own
    inverse = np.linalg.inv(np.eye(F.shape[1]) + (F / own[:, None]).T @ F)
    free = np.maximum(1.0 - np.sum((F @ inverse) * F, axis=1) / own, 1e-12)
    slope = (found.knots[:, -1] - found.knots[:, 0]) / (SCORES[-1] - SCORES[0])
    return np.asarray(np.maximum(unit * np.sqrt(own / free) * slope, np.finfo(np.float64).tiny))

"""Stages `shape` and `covariance`: what entries are judged by.

`shape` counts the values of every feature, for its quantiles. `covariance` estimates the covariance of normal scores,
in a first round from wrapped scores, then from scores with distrusted entries as expected.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dcfpca.rpca.calibration.calibration import Calibration
from dcfpca.rpca.calibration.expectation import (
    correlation_of,
    model_from_covariance,
    model_from_moments,
    moment_sums,
    wrapped_sums,
)
from dcfpca.rpca.calibration.normal_scores import SHAPE_BINS, shape_from_counts, usual_range
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Consensus, Layout, Outcome, TensorMessage, Total
from dcfpca.rpca.refinement.closing_plan import COVARIANCE, NULL, SHAPE, ClosingPlan
from dcfpca.rpca.refinement.closing_stage import COUNTERS, ClosingStage, keep_made_by
from dcfpca.rpca.refinement.noise_scale import count_sizes
from dcfpca.rpca.refinement.outlyingness import HALF
from dcfpca.rpca.refinement.refine import AT_MEDIAN
from dcfpca.rpca.round_limits import COVARIANCE_ROUNDS
from dcfpca.rpca.small_cells import Merging, merge_sides
from dcfpca.rpca.stage import Stage
from dcfpca.rpca.stage_checks import broken_count, exceeds, indefinite
from dcfpca.rpca.stage_list import StagedSite


class Shape(ClosingStage):
    """One round of counts."""

    def __init__(self, fit: Stage, width: int, bound: int | None, least: int) -> None:
        super().__init__(SHAPE, fit, width, Layout(fit.down.rows, 2 * SHAPE_BINS.count), (COVARIANCE,), bound)
        self._least = least

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """Counts of how far every feature's values lie above and below its median."""
        plan, total = ClosingPlan.of(asked.broadcast), np.zeros((self.up.rows, self.up.columns))
        for cut in blocks(site.view.own):
            M = site.view.whole.read(*cut)
            # Features with half of their entries equal cannot show which samples are odd, and are not cut short by it.
            counted = plan.calm(M) | (plan.one_value > HALF)[:, None]
            off = np.where(counted, M - plan.median[:, None], np.nan)
            above = off > AT_MEDIAN * plan.spread[:, None]
            sides = np.where(above, off, np.nan), np.where(above, np.nan, np.abs(off))
            total += np.column_stack([count_sizes(side, plan.spread, SHAPE_BINS) for side in sides])
        return TensorMessage(total, np.zeros(0))

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """Counts with small cells merged, from the lowest value to the highest."""
        above, below = np.split(exact.tensor, 2, axis=1)
        below, above = merge_sides(below, above, least)
        return TensorMessage(np.column_stack([above, below]), exact.scalars)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The knots of every feature."""
        plan = ClosingPlan.of(consensus.broadcast)
        above, below = np.split(np.rint(total.sums.tensor), 2, axis=1)
        sites = total.contributors
        # Calm samples alone: with the number of all samples, the levels of merged groups would lie too far out.
        counted = float(np.median((above + below).sum(axis=1)))
        merging = Merging(max(counted, 1.0) / sites, sites, self._least)
        shape = shape_from_counts(above, below, plan.median, plan.spread, plan.few, merging)
        ranged = ~np.isnan(usual_range(above, below, plan.few, merging.hidden)[:, 0])
        few = plan.few.astype(np.float64) + ranged
        found = replace(Calibration.unknown(len(few)), knots=shape.knots, reach=shape.reach, few=few)
        plan = replace(plan, fresh=True, calibration=found)
        columns, _, final, limited = consensus.memory[COUNTERS]
        return self.next_round(consensus, COVARIANCE, plan, (columns, 0.0, final, limited), 0.0)

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Counts of entries, at most one a column."""
        counts, rounding = total.sums.tensor, total.rounding[0]
        if reason := broken_count(counts, rounding, what="a count of values"):
            return reason
        most, slack = ClosingPlan.of(consensus.broadcast).columns, self.up.columns * rounding
        return "a feature has more entries than there are columns" if exceeds(counts.sum(axis=1), most, slack) else ""


class Covariance(ClosingStage):
    """A few rounds of sums of products of scores."""

    def __init__(self, fit: Stage, width: int, bound: int | None) -> None:
        rows = fit.down.rows
        super().__init__(COVARIANCE, fit, width, Layout(rows, rows + 1, 1), (COVARIANCE, NULL), bound)

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """Second and first moments of scores, and how many samples they are of."""
        plan, total = ClosingPlan.of(asked.broadcast), np.zeros(self.up.size)
        assert plan.calibration is not None
        rows, shape, model = self.up.rows, plan.calibration.shape, plan.calibration.model
        for first, last in blocks(site.view.own):
            M = site.view.whole.read(first, last)
            scores = shape.forward(M[:, plan.calm(M)])
            if plan.fresh:
                count, mean, squares = float(scores.shape[1]), np.zeros(rows), wrapped_sums(scores)
            else:
                count, mean, squares = moment_sums(model, scores)
            total += TensorMessage(np.column_stack([squares, mean]), np.array([count])).flat()
        if not plan.fresh:
            keep_made_by(site, plan)
        return TensorMessage.unflatten(self.up, total / plan.columns)

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """All of it: the count is what the moments are of."""
        return exact

    def weighted(self, update: TensorMessage, weight: float) -> TensorMessage:
        """All of it, the count as well."""
        return TensorMessage(weight * update.tensor, weight * update.scalars)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The next covariance; after the last, the null round."""
        if not (np.isfinite(total.sums.tensor).all() and np.isfinite(total.sums.scalars).all()):
            return replace(consensus, outcome=Outcome.DIVERGED)
        plan = ClosingPlan.of(consensus.broadcast)
        assert plan.calibration is not None
        sums, count = total.sums.tensor * plan.columns, float(np.rint(total.sums.scalars[0] * plan.columns))
        if plan.fresh:
            correlation = correlation_of(sums[:, :-1])
            few = plan.calibration.of_few_values
            model = model_from_covariance(np.zeros(len(sums)), correlation, plan.columns, few)
        else:
            model = model_from_moments(plan.calibration.model, count, sums[:, -1], sums[:, :-1])
        found = replace(plan.calibration, mean=model.centre, own=model.own, factor=model.factor)
        columns, done, final, limited = consensus.memory[COUNTERS]
        stage = COVARIANCE if done + 1 < COVARIANCE_ROUNDS else NULL
        plan = replace(plan, fresh=False, taken=count, calibration=found)
        return self.next_round(consensus, stage, plan, (columns, done + 1, final, limited), 0.0)

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Products of scores are a sum of squares, over no more samples than there are."""
        if exceeds(total.sums.scalars, 1.0, total.rounding[1]) or exceeds(-total.sums.scalars, 0.0, total.rounding[1]):
            return "the moments are of a negative number of samples, or of more than there are"
        if indefinite(total.sums.tensor[:, :-1], total.rounding[0]):
            return "the sum of squares of scores is negative"
        return ""

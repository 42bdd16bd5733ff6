"""Stages `shape`, `covariance` and `check`: what entries are judged by, and whether that flags ordinary ones.

`shape` counts the values of every feature, for its quantiles. `covariance` estimates the covariance of normal scores,
in a first round from wrapped scores, then from scores with distrusted entries as expected. In `check`, after the null,
sites form their own views and draw samples anew from them, in which nothing is wrong, to count what is flagged of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import Calibration
from dcfpca.rpca.calibration.expectation import (
    chunks,
    correlation_of,
    model_from_covariance,
    model_from_moments,
    moment_sums,
    wrapped_sums,
)
from dcfpca.rpca.calibration.normal_scores import SHAPE_BINS, shape_from_counts, usual_range
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Consensus, FloatArray, Kind, Layout, Outcome, TensorMessage, Total
from dcfpca.rpca.own_view.carriers import FAILS, carried, error_ratio
from dcfpca.rpca.own_view.own_view import kept_arrays, kept_view, own_plan, sample_of
from dcfpca.rpca.refinement.closing_plan import CHECK, COVARIANCE, NULL, SHAPE, VERDICT, ClosingPlan, local_rate
from dcfpca.rpca.refinement.closing_stage import CARRIERS, COUNTERS, WANTED, ClosingStage, hidden_columns, results
from dcfpca.rpca.refinement.hidden_entries import HiddenColumns
from dcfpca.rpca.refinement.noise_scale import count_sizes
from dcfpca.rpca.refinement.outlyingness import HALF
from dcfpca.rpca.refinement.refine import AT_MEDIAN
from dcfpca.rpca.refinement.scoring import score_twice
from dcfpca.rpca.round_limits import COVARIANCE_ROUNDS
from dcfpca.rpca.small_cells import Merging, merge_sides
from dcfpca.rpca.stage import Partition, Stage
from dcfpca.rpca.stage_checks import broken_count, exceeds, indefinite
from dcfpca.rpca.stage_list import StagedSite

SUMS, FLAGGED = 4, 2  # shares of entries flagged anew, drawn and flagged, and the vote; the place of the third
DRAWN = 20_000  # entries that a site draws at least, in whole passes over its own samples
SURE = 0.95  # of the interval that is told


class Shape(ClosingStage):
    """One round of counts."""

    def __init__(self, fit: Stage, width: int, bound: int | None, least: int) -> None:
        super().__init__(SHAPE, fit, width, Layout(fit.down.rows, 2 * SHAPE_BINS.count), (COVARIANCE,), bound)
        self._least = least

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """How far every feature's values lie above and below its median."""
        plan, total = ClosingPlan.of(asked.broadcast), np.zeros((self.up.rows, self.up.columns))
        for cut in blocks(site.view.own):
            M = site.view.whole.read(*cut)
            # Features half of whose entries are equal say nothing of who is odd, and are not cut short by it.
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
        merging = Merging(plan.columns / sites, sites, self._least)
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
            for cut in chunks(rows, rows, scores.shape[1]):
                if plan.fresh:
                    count, mean, squares = float(scores[:, cut].shape[1]), np.zeros(rows), wrapped_sums(scores[:, cut])
                else:
                    count, mean, squares = moment_sums(model, scores[:, cut])
                total += TensorMessage(np.column_stack([squares, mean]), np.array([count])).flat()
        return TensorMessage.unflatten(self.up, total / plan.columns)

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """All of it: the count is what the moments are of."""
        return exact

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
            model = model_from_covariance(np.zeros(len(sums)), correlation, plan.columns, few, plan.rank)
        else:
            model = model_from_moments(plan.calibration.model, count, sums[:, -1], sums[:, :-1], plan.rank)
        found = replace(plan.calibration, mean=model.centre, own=model.own, factor=model.factor)
        columns, done, final, limited = consensus.memory[COUNTERS]
        stage = COVARIANCE if done + 1 < COVARIANCE_ROUNDS else NULL
        plan = replace(plan, fresh=False, taken=count, calibration=found)
        return self.next_round(consensus, stage, plan, (columns, done + 1, final, limited), 0.0)

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Products of scores are a sum of squares, over no more samples than there are."""
        if exceeds(total.sums.scalars, 1.0, total.rounding[1]) or exceeds(-total.sums.scalars, 0.0, total.rounding[1]):
            return "the moments are of more samples than there are, or of fewer than none"
        if indefinite(total.sums.tensor[:, :-1], total.rounding[0]):
            return "the sum of squares of scores is negative"
        return ""


class Check(ClosingStage):
    """The last round of a run whose entries are judged by their whole covariance: sites form their own views, draw
    samples anew from them, and say which directions they carry and whether the shared model serves them."""

    def __init__(self, fit: Stage, width: int, bound: int | None, rate: float, min_carriers: int) -> None:
        sums = SUMS + width * (width + 1) // 2
        super().__init__(CHECK, fit, width, Layout(0, 0, sums, kinds=((sums, Kind.SHARE),)), (), bound)
        self._local, self._min_carriers = local_rate(rate), min_carriers

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """How many entries are flagged of samples drawn from the own fit, how many were drawn and how many are flagged,
        per own entry; and what the site adds to the vote and to the directions' carriers."""
        plan = ClosingPlan.of(asked.broadcast)
        arrays, votes = self._own_view(hidden_columns(site), plan)
        return self._update(plan, CheckPart(asked, arrays)(site), votes)

    def combine(self, partition: Partition, asked: Consensus) -> TensorMessage:
        """The own view is of the whole site, and its parts draw from it."""
        plan = ClosingPlan.of(asked.broadcast)
        assert isinstance(partition.columns, HiddenColumns)  # a method with closing stages hides entries
        arrays, votes = self._own_view(partition.columns, plan)
        return self._update(plan, partition.total(CheckPart(asked, arrays)), votes)

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """What is counted of samples drawn anew is nobody's; of so few flagged entries none are told."""
        plan, scalars = ClosingPlan.of(asked.broadcast), exact.scalars.copy()
        scalars[FLAGGED] *= scalars[FLAGGED] * plan.columns * plan.U.shape[0] >= least - 0.5
        return replace(exact, scalars=scalars)

    def _own_view(self, hidden: HiddenColumns, plan: ClosingPlan) -> tuple[dict[str, NDArray[np.generic]], FloatArray]:
        """What the site keeps of its own view, and its vote and projector."""
        M, unknown = sample_of(hidden)
        ratio, projector = error_ratio(plan, M, unknown), carried(plan, M)
        arrays = kept_arrays(own_plan(plan, M, self._local), ratio)
        return arrays, np.append(float(ratio > FAILS), projector[np.triu_indices(self.width)])

    def _update(self, plan: ClosingPlan, drawn: FloatArray, votes: FloatArray) -> TensorMessage:
        return TensorMessage(np.zeros((0, 0)), np.concatenate([drawn / plan.columns / plan.U.shape[0], votes]))

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The expected number of ordinary entries among the flagged, who carries what, and the end of the run."""
        plan = ClosingPlan.of(consensus.broadcast)
        assert plan.calibration is not None
        drawn, votes, projectors = self._read(total.sums.scalars)
        projectors = projectors[: plan.rank, : plan.rank]
        ordinary, entries, flagged = np.maximum(drawn, 0.0) * plan.columns * plan.U.shape[0]
        found = {
            "ordinary": ordinary,
            "ordinary_most": most_ordinary(ordinary),
            "flagged": flagged / max(entries, 1.0),
            "failing": float(votes > 0.5 * total.contributors),
        }
        figures = plan.verdict.copy()
        for name, value in found.items():
            figures[VERDICT.index(name)] = value
        known = replace(plan.calibration, ordinary=float(ordinary / max(entries, 1.0)))
        plan = replace(plan, verdict=figures, calibration=known)
        outcome = Outcome.OUT_OF_ROUNDS if consensus.memory[COUNTERS][3] > 0.0 else Outcome.CONVERGED
        memory = {**consensus.memory, CARRIERS: projectors, WANTED: np.array([float(self._min_carriers)])}
        return replace(consensus, broadcast=plan.broadcast(), memory=memory, outcome=outcome)

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """No more entries are flagged than there are, those at most one a column and feature; and a site adds at most
        one to the vote and to the carriers of any direction."""
        (anew, entries, flagged), votes, projectors = self._read(total.sums.scalars)
        slack, most = 2.0 * total.rounding[1], float(total.contributors)
        if (
            exceeds(-total.sums.scalars[:SUMS], 0.0, slack)
            or exceeds(anew, entries, slack)
            or exceeds(entries, 1.0, slack)
        ):
            return "more entries of samples drawn anew are flagged than were drawn"
        if exceeds(flagged, entries, slack):
            return "more entries are flagged than there are"
        if reason := broken_count(np.array([votes]), slack, most, "the vote of the sites"):
            return reason
        if indefinite(projectors, slack) or indefinite(most * np.eye(self.width) - projectors, slack):
            return "a direction has fewer carriers than none, or more than there are sites"
        return ""

    def _read(self, scalars: FloatArray) -> tuple[FloatArray, float, FloatArray]:
        """Shares of entries, votes, and the sum of the sites' projectors."""
        upper = np.zeros((self.width, self.width))
        upper[np.triu_indices(self.width)] = scalars[SUMS:]
        return scalars[: SUMS - 1], float(scalars[SUMS - 1]), np.asarray(upper + np.triu(upper, 1).T)


@dataclass(frozen=True, slots=True, eq=False)
class CheckPart:
    """Asks a site or a part of one to keep the own view of the site and to draw from it."""

    asked: Consensus
    arrays: dict[str, NDArray[np.generic]]

    def __call__(self, site: StagedSite) -> FloatArray:
        """Entries flagged of samples drawn anew, entries, and entries flagged."""
        site.kept.update(self.arrays)
        plan, total = ClosingPlan.of(self.asked.broadcast), np.zeros(SUMS - 1)
        mine = kept_view(plan, site.kept)
        for M, block in results(site, plan, hiding=False):
            scored, seen = score_twice(plan, mine, M, block.L, block.V)[0], int(np.count_nonzero(~np.isnan(M)))
            ordinary = np.where(scored.flagged, np.nan, M)
            rng = np.random.default_rng([hidden_columns(site).seed, block.start])
            passes = int(np.clip(DRAWN // max(seen, 1), 1, 20))
            flagged = [np.count_nonzero(_flagged_anew(plan, mine, ordinary, rng)) for _ in range(passes)]
            total += np.array([sum(flagged) / passes, seen, np.count_nonzero(scored.flagged)])
        return total


def most_ordinary(expected: float) -> float:
    """The count that a Poisson number with this mean stays below with probability SURE, and the mean's own error."""
    return float(np.ceil(scipy.special.gammaincinv(expected + 1.0, SURE) + 1.0))


def _flagged_anew(
    shared: ClosingPlan, mine: ClosingPlan | None, values: FloatArray, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which entries are flagged of as many samples, drawn from the covariance of the site's view with these values
    (NaN: none)."""
    plan = mine or shared
    assert plan.calibration is not None
    factor, own, count = plan.calibration.factor, plan.calibration.own[:, None], values.shape[1]
    drawn = factor @ rng.normal(size=(factor.shape[1], count)) + np.sqrt(own) * rng.normal(size=values.shape)
    level = scipy.special.ndtr(drawn / np.sqrt(np.sum(factor**2, axis=1, keepdims=True) + own))
    shape = plan.calibration.shape
    M = shape.backward(plan.calibration.mean[:, None] + drawn)
    # A straight feature stays so: gaps between a site's own few values would break exact linear relations.
    for row in np.flatnonzero(~shape.straight()):
        known = np.sort(values[row, ~np.isnan(values[row])])
        if known.size:
            M[row] = np.interp(level[row] * known.size - 0.5, np.arange(known.size), known)
    M = np.where(np.isnan(values), np.nan, M)
    zero = np.zeros((values.shape[1], plan.U.shape[1]))
    return score_twice(shared, mine, M, M, zero)[0].flagged

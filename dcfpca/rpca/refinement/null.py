"""Stage `null`: counts of the residuals' sizes, by which everybody flags and scores, and the verdict on the run.

Sizes are counted twice. Counts per feature and side give the units; there a site's smallest cells are merged, which
removes the tails. All features together have enough entries at a site to show its tail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import CONSTANT, TAIL_RANKS, Calibration
from dcfpca.rpca.calibration.empirical_null import SIZE_BINS, fit_null, levels_of_side, pooled, units_by_side
from dcfpca.rpca.calibration.expectation import Expected
from dcfpca.rpca.calibration.normal_scores import SCORES
from dcfpca.rpca.calibration.sample_test import (
    BY_COVARIANCE,
    BY_DIRECTIONS,
    OF_FEW_SAMPLES,
    Prior,
    count_oddness,
    fit_sample_null,
)
from dcfpca.rpca.calibration.sample_test import COUNTS as ODDNESS_COUNTS
from dcfpca.rpca.method import Consensus, FloatArray, Layout, Outcome, TensorMessage, Total
from dcfpca.rpca.own_view.own_view import columns_sample
from dcfpca.rpca.refinement.closing_plan import CHECK, NULL, ClosingPlan, FitEnding, local_rate, unchecked_rate
from dcfpca.rpca.refinement.closing_stage import (
    COLUMNS_CHANGED,
    COUNTERS,
    ClosingStage,
    coefficients,
    hidden_columns,
    refined_here,
    results,
    sampled_blocks,
    with_made_by,
)
from dcfpca.rpca.refinement.hidden_entries import HiddenColumns
from dcfpca.rpca.refinement.identifiability import OUTLYING, features_of_block, samples_without
from dcfpca.rpca.refinement.noise_scale import DISTANCE_BINS, count_above, count_sides, count_sizes, distance_scale
from dcfpca.rpca.refinement.scoring import expect_entries, squared_distance
from dcfpca.rpca.refinement.verdict import FlagCounts, figures_of
from dcfpca.rpca.robust_projection import project
from dcfpca.rpca.scaling import ENTRIES
from dcfpca.rpca.small_cells import Merging, at_least, merge_shares, merge_sides
from dcfpca.rpca.stage import Partition, Stage
from dcfpca.rpca.stage_checks import SLACK, broken_count, exceeds, indefinite, unequal
from dcfpca.rpca.stage_list import StagedSite

COUNTS = 4  # scalars before the distances: columns, entries of L out of range, entries, odd columns
ODD_SHARE = 0.5  # a column with more of its entries beyond the shoulder of the noise is not explained
LEAST_POOLED = 0.2  # of the features have more than few values: otherwise all features determine the null
NEVER = 1e140  # larger than any entry, yet a number that a broadcast can hold: infinite ones are refused
FAR = 2.0  # an entry of L further than this many reaches from its feature's median is out of range


class Null(ClosingStage):
    """The last round, unless entries are judged by their whole covariance: such a run has a check after it."""

    def __init__(self, fit: Stage, width: int, bound: int | None, rate: float, least: int) -> None:
        scalars = COUNTS + width * (width + 1) // 2 + DISTANCE_BINS.count + ODDNESS_COUNTS + SIZE_BINS.count
        up = Layout(fit.down.rows, 2 * SIZE_BINS.count, scalars)
        super().__init__(NULL, fit, width, up, (CHECK,), bound)
        self._rate, self._least = rate, least

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """Counts of deviations per feature and side, and of distances within the subspace; and where the fit is exact,
        which directions most of the site's samples do not have."""
        return self._update(ClosingPlan.of(asked.broadcast), NullPart(asked, self.up)(site), hidden_columns(site))

    def combine(self, partition: Partition, asked: Consensus) -> TensorMessage:
        """The parts' counts added; the sizes of all features and the directions are of the whole site."""
        assert isinstance(partition.columns, HiddenColumns)  # a method with closing stages hides entries
        counted = partition.total(NullPart(asked, self.up))
        return self._update(ClosingPlan.of(asked.broadcast), counted, partition.columns)

    def _update(self, plan: ClosingPlan, counted: FloatArray, hidden: HiddenColumns) -> TensorMessage:
        """These counts with what is of the whole site."""
        update = with_sizes(plan, TensorMessage.unflatten(self.up, counted))
        without = np.zeros((self.width, self.width))
        if plan.ending is FitEnding.EXACT:
            own = directions_without(plan, columns_sample(hidden.columns), self._least)
            without[: plan.rank, : plan.rank] = own * hidden.shape[1] / plan.columns
        _, absent, _ = _parts(self.width, update.scalars)
        absent += without[np.triu_indices(self.width)]
        return update

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """Counts with small cells merged: of each feature from the lowest deviation to the highest, of all features by
        size, of distances and oddness; and no count of few odd columns or entries. Nothing at all if fewer than
        `least` columns of the site are in the sample."""
        plan, rows = ClosingPlan.of(asked.broadcast), self.up.rows
        n = plan.columns
        if plan.judged_share < 1.0 and np.rint(exact.scalars[0] * n) < least:
            return TensorMessage(np.zeros_like(exact.tensor), np.zeros_like(exact.scalars))
        above, below = np.split(np.rint(exact.tensor * n), 2, axis=1)
        below, above = merge_sides(below, above, least)
        (columns, far, entries, odd), absent, lines = _parts(self.width, exact.scalars)
        few = [at_least(far, least / (n * rows)), entries, at_least(odd, least / n)]
        units = n, n, n * rows
        merged = [merge_shares(line[None, :], unit, least)[0] for line, unit in zip(lines, units, strict=True)]
        return TensorMessage(np.column_stack([above, below]) / n, np.concatenate([[columns], few, absent, *merged]))

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The null, and with it the end of the run or its last round."""
        plan, sums = ClosingPlan.of(consensus.broadcast), total.sums
        assert plan.calibration is not None
        if not (np.isfinite(sums.tensor).all() and np.isfinite(sums.scalars).all()):
            return replace(consensus, outcome=Outcome.DIVERGED)
        head, absent, (distances, odd, sizes) = _parts(self.width, sums.scalars * plan.columns)
        above, below = np.split(np.rint(sums.tensor * plan.columns), 2, axis=1)
        # Without merging, the features' own counts have their tails, and nothing depends on the split into sites.
        merged = self._least > 1
        counts = NullCounts(above, below, np.rint(sizes * self.up.rows) if merged else pooled_sizes(plan, above, below))
        sites, counted = total.contributors, plan.columns if plan.judged_share >= 1.0 else float(np.rint(head[0]))
        merging = Merging(counted / sites, sites, self._least)
        checked = plan.ending is FitEnding.REFINED and plan.calibration.whole
        rate, rows = self._rate, self.up.rows
        local = local_rate(rate, rows) if checked else unchecked_rate(rate, counted)
        found = with_null(plan, counts, local, merging)
        plan = replace(
            plan,
            calibration=found,
            null_scale=typical_deviation(plan, found),
            cut=found.cut,
            sample_null=fit_sample_null(np.rint(odd), merging, _prior(plan, found.whole)),
            distance_scale=distance_scale(np.rint(distances), float(max(plan.rank, 1)), plan.rank),
        )
        flags = flagged_counts(plan, found, counts)
        on_few = 0.0
        if plan.ending is FitEnding.EXACT:
            without = _symmetric(absent / plan.columns, self.width)[: plan.rank, : plan.rank]
            on_few = features_of_block(plan.subspace.U, _deviations(plan), without)
        plan = replace(plan, verdict=figures_of(plan, flags, head, on_few))
        if checked:
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
        (columns, far, entries, odd), absent, (distances, oddness, sizes) = _parts(self.width, sums.scalars * n)
        counts, together = sums.tensor * n, pooled_features(ClosingPlan.of(consensus.broadcast).few)
        everybody = ClosingPlan.of(consensus.broadcast).judged_share >= 1.0
        if everybody and (reason := self.changed_columns(columns / n, total)):
            return reason
        if exceeds(columns, n, rounding):
            return COLUMNS_CHANGED
        if reason := broken_count(counts, tensor_rounding, what="a count of residuals"):
            return reason
        of_columns = np.concatenate([distances, oddness, [odd]])
        if reason := broken_count(of_columns, rounding, columns + rounding, "a count of columns"):
            return reason
        if reason := broken_count(sizes * self.up.rows, self.up.rows * rounding, what="a count of sizes"):
            return reason
        by_feature, summed = counts.sum(axis=1), 2 * SIZE_BINS.count * tensor_rounding
        if exceeds(by_feature, columns, summed + rounding):
            return "a feature has more entries than there are columns"
        if unequal(by_feature.mean(), entries, summed + rounding):
            return "the counts of residuals do not add up to the entries"
        known = consensus.memory.get(ENTRIES)
        if known is not None and total.whole and (unequal if everybody else exceeds)(by_feature, known, summed):
            return "the counts of a feature do not add up to its entries in earlier rounds"
        if unequal(sizes.sum(), by_feature[together].sum() / self.up.rows, summed + SIZE_BINS.count * rounding):
            return "the pooled sizes are not the sum over the features"
        if unequal(distances.sum(), columns, (1.0 + DISTANCE_BINS.count) * rounding):
            return "the distances are not those of all columns"
        if unequal(oddness.sum(), columns, (1.0 + ODDNESS_COUNTS) * rounding):
            return "the counts of how odd columns are do not add up to the columns"
        without = _symmetric(absent, self.width)
        if indefinite(without, rounding) or indefinite(
            columns * np.eye(self.width) - without, rounding + SLACK * columns
        ):
            return "fewer samples than none, or more than all, do not have a direction"
        return "more entries of L are out of range than there are" if exceeds(far, columns, 2.0 * rounding) else ""


def _prior(plan: ClosingPlan, whole: bool) -> Prior:
    if not whole:
        return BY_DIRECTIONS
    return BY_COVARIANCE if plan.taken >= len(plan.centre) else OF_FEW_SAMPLES


def _parts(width: int, scalars: FloatArray) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """Counts of columns and entries; how many samples do not have a direction, by products of its coefficients; and the
    counts of distances, of how odd columns are, and of the sizes of all features."""
    ends = np.cumsum([COUNTS, width * (width + 1) // 2, DISTANCE_BINS.count, ODDNESS_COUNTS])
    head, absent, *lines = np.split(scalars, ends)
    return head, absent, lines


def _symmetric(upper: FloatArray, width: int) -> FloatArray:
    """The matrix with this upper triangle."""
    found = np.zeros((width, width))
    found[np.triu_indices(width)] = upper
    return np.asarray(found + np.triu(found, 1).T)


@dataclass(frozen=True, slots=True, eq=False)
class NullPart:
    """Asks a site or a part of one for the sums over its columns."""

    asked: Consensus
    layout: Layout

    def __call__(self, site: StagedSite) -> FloatArray:
        """The sums, as one vector."""
        plan, total = with_made_by(ClosingPlan.of(self.asked.broadcast), site.kept), np.zeros(self.layout.size)
        for M, L, V, refined in _fitted(site, plan):
            found, distance = expect_entries(plan, M, L, refined=refined), squared_distance(plan, V)
            total += null_update(plan, M, L, V, found, distance).flat()
        return total


def directions_without(plan: ClosingPlan, M: FloatArray, least: int) -> FloatArray:
    """`samples_without` of these columns' coefficients in an exact fit."""
    return samples_without(project(plan.subspace.U, M).coefficients / _deviations(plan), least)


def _deviations(plan: ClosingPlan) -> FloatArray:
    """Of the coefficients along the directions of L."""
    return np.sqrt(np.maximum(plan.subspace.variance, np.finfo(np.float64).tiny))


def _fitted(
    site: StagedSite, plan: ClosingPlan
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray, NDArray[np.bool_]]]:
    """Columns that make the null, their L and coefficients, and which of them took part in the refinement."""
    if plan.ending is not FitEnding.REFINED:
        for M, block in results(site, plan, hiding=False):
            yield M, block.L, block.V, np.ones(M.shape[1], dtype=bool)
        return
    hidden = hidden_columns(site)
    hidden.hiding = False
    for places, (M,) in sampled_blocks(site, plan.judged_share, lambda first, last: [hidden.read(first, last)]):
        V = coefficients(site, plan, M, places)
        yield M, plan.model.low_rank(V[:, : plan.rank]), V, refined_here(site, plan, places)


def null_update(
    plan: ClosingPlan, M: FloatArray, L: FloatArray, V: FloatArray, found: Expected, distance: FloatArray
) -> TensorMessage:
    """The sums of the null round over these columns."""
    one, z = np.ones(len(M)), found.z
    counts = np.column_stack(count_sides(z, one, SIZE_BINS, 0.0))
    seen = np.count_nonzero(~np.isnan(M), axis=0)
    beyond = np.count_nonzero(np.abs(z) > (OUTLYING if plan.ending is FitEnding.EXACT else 5.0), axis=0)
    odd = np.count_nonzero(beyond > ODD_SHARE * np.maximum(seen, 1))
    far = np.count_nonzero(np.abs(L - plan.median[:, None]) > FAR * plan.reach[:, None]) / M.shape[0]
    head = [M.shape[1], far, float(seen.sum()) / M.shape[0], odd]
    distances = count_sizes(distance[None, :], np.array([float(max(plan.rank, 1))]), DISTANCE_BINS)[0]
    width = plan.U.shape[1]
    none = np.zeros(width * (width + 1) // 2)  # directions are of the whole site
    by_column = np.concatenate([head, none, distances, count_oddness(found.odd), np.zeros(SIZE_BINS.count)])
    return TensorMessage(counts / plan.columns, by_column / plan.columns)


def with_sizes(plan: ClosingPlan, update: TensorMessage) -> TensorMessage:
    """A site's counts with those of the sizes of all pooled features, each in the unit that it has at the site: the one
    over all sites is known only after this round."""
    above, below = np.split(np.rint(update.tensor * plan.columns), 2, axis=1)
    scalars, shared = update.scalars.copy(), np.cumsum(pooled_sizes(plan, above, below))
    whole = np.diff(np.rint(shared), prepend=0.0)  # what two bins share goes to one of them, and the total stays
    scalars[-SIZE_BINS.count :] = whole / len(above) / plan.columns
    return TensorMessage(update.tensor, scalars)


def pooled_sizes(plan: ClosingPlan, above: FloatArray, below: FloatArray) -> FloatArray:
    """The sizes of all pooled features together, in the units that these counts tell."""
    together, total = pooled_features(plan.few), np.zeros(SIZE_BINS.count)
    furthest = furthest_usual(plan)[together]
    for side in (above[together], below[together]):
        total += pooled(side, units_by_side(side, plan.few[together], furthest))
    return total


def pooled_features(few: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The features whose sizes are counted together. Features of few values have tails of their own, which say nothing
    about others."""
    return ~few if np.mean(~few) >= LEAST_POOLED else np.ones_like(few)


@dataclass(frozen=True, slots=True, eq=False)
class NullCounts:
    """Counts of deviations per feature above and below what is expected, and of the sizes of all `pooled_features`."""

    above: FloatArray
    below: FloatArray
    sizes: FloatArray


def with_null(plan: ClosingPlan, counts: NullCounts, local: float, merging: Merging) -> Calibration:
    """The calibration with units, null and tails."""
    assert plan.calibration is not None
    sides = counts.above, counts.below
    shares = np.sum(sides, axis=2) / np.maximum(np.sum(sides, axis=(0, 2)), 1.0)
    levels = [levels_of_side(share, merging) for share in shares]
    furthest = furthest_usual(plan)
    units = [units_by_side(side, plan.few, furthest, of) for side, of in zip(sides, levels, strict=True)]
    # Of grades most deviations tell how exactly the commonest are expected.
    units = [np.where(plan.calibration.shape.graded(), np.maximum(unit, 1.0), unit) for unit in units]
    null = fit_null(counts.sizes, local)
    rows = range(len(plan.few))
    own = [[pooled(side[[k]], unit[[k]]) for side, unit in zip(sides, units, strict=True)] for k in rows]
    return replace(
        plan.calibration,
        above=units[0],
        below=units[1],
        entries=np.sum(sides, axis=(0, 2)),
        tails=tail_sizes(np.sum(own, axis=1), 2 * merging.hidden),
        freedom=null.freedom,
        unit=null.unit,
        wrong=null.wrong,
        cut=null.cut,
    )


def tail_sizes(counts: FloatArray, hidden: int) -> FloatArray:
    """Sizes that at most TAIL_RANKS entries of each feature exceed, from its counts in its units; `hidden` of its
    entries may lie further off."""
    beyond = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    edges = np.concatenate([[0.0], SIZE_BINS.edges, [NEVER]])
    few = [np.column_stack([np.rint(beyond) + hidden <= rank, np.ones(len(counts))]) for rank in TAIL_RANKS]
    return np.column_stack([edges[np.argmax(which, axis=1)] for which in few])


def flagged_counts(plan: ClosingPlan, found: Calibration, counts: NullCounts) -> FlagCounts:
    """How many entries of each feature are flagged, as far as its counts show, and how many of all features."""
    one, together = np.ones(len(plan.few)), pooled_features(plan.few)
    sides = (counts.above, found.above), (counts.below, found.below)
    flagged = np.sum([count_above(side, one, found.cut * unit, SIZE_BINS) for side, unit in sides], axis=0)
    flagged = np.where(plan.one_value >= CONSTANT, 0.0, flagged)
    of_pooled = count_above(counts.sizes[None, :], np.ones(1), np.array([found.cut]), SIZE_BINS)[0]
    both = counts.above + counts.below
    outlying = count_above(both, one, OUTLYING * one, SIZE_BINS)
    return FlagCounts(flagged, outlying, both.sum(axis=1), float(of_pooled + flagged[~together].sum()))


def furthest_usual(plan: ClosingPlan) -> FloatArray:
    """How many deviations off a usual value can be, for features whose usual values have a range; infinite for
    others."""
    found = plan.calibration
    if found is None or not found.whole:
        return np.full(len(plan.few), np.inf)
    return np.where(found.few > 1.0, 2.0 * SCORES[-1] / score_deviation(found), np.inf)


def score_deviation(found: Calibration) -> FloatArray:
    """The deviation of every feature's scores from what all others say."""
    F, own = found.factor, found.own
    inverse = np.linalg.inv(np.eye(F.shape[1]) + (F / own[:, None]).T @ F)
    free = np.maximum(1.0 - np.sum((F @ inverse) * F, axis=1) / own, 1e-12)
    return np.asarray(np.sqrt(own / free))


def typical_deviation(plan: ClosingPlan, found: Calibration) -> FloatArray:
    """How far off entries of each feature typically are, in the data's units."""
    unit = 0.5 * (found.above + found.below) * found.unit
    if plan.ending is not FitEnding.REFINED or not found.whole:
        return unit * plan.noise
    slope = (found.knots[:, -1] - found.knots[:, 0]) / (SCORES[-1] - SCORES[0])
    return np.asarray(np.maximum(unit * score_deviation(found) * slope, np.finfo(np.float64).tiny))

"""Stage `refine`: the noise of every feature, and the subspace under it, from a fit of columns with Tukey's biweight.

Sites send sums in units that make everything of order one. A first batch of rounds runs at the full width with some
entries hidden, until stage `validate` chooses the rank; a second at that rank with all entries, until L is at rest.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from dcfpca.rpca.kernels.refinement_loops import TUKEY
from dcfpca.rpca.method import Consensus, FloatArray, Layout, Outcome, TensorMessage, Total
from dcfpca.rpca.refinement.alternating_fit import (
    RoundSums,
    fit_columns,
    fit_freely,
    leverage_of,
    pulls,
    row_step,
)
from dcfpca.rpca.refinement.closing_plan import NULL, REFINE, SHAPE, VALIDATE, ClosingPlan
from dcfpca.rpca.refinement.closing_stage import (
    COUNTERS,
    ClosingStage,
    Read,
    carried_coefficients,
    hidden_columns,
    keep_coefficients,
    sampled_blocks,
)
from dcfpca.rpca.refinement.noise_scale import (
    MARGINAL_BINS,
    RESIDUAL_BINS,
    count_sides,
    fit_noise,
    marginals,
    median_of_sides,
)
from dcfpca.rpca.refinement.outlyingness import COUNTS as OUTLYING_COUNTS
from dcfpca.rpca.refinement.outlyingness import (
    DIRECTIONS,
    OUTLYING_BINS,
    PLACE_BINS,
    PLACES,
    Outlyingness,
    searched_for,
    stand_still,
)
from dcfpca.rpca.round_limits import BOUND_ROUNDS, MOST_ROUNDS
from dcfpca.rpca.scaling import ENTRIES
from dcfpca.rpca.small_cells import merge_sides
from dcfpca.rpca.stage import Stage
from dcfpca.rpca.stage_checks import broken_count, exceeds, indefinite, unequal
from dcfpca.rpca.stage_list import StagedSite

STILL = 0.2  # spreads by which medians, and logarithms by which spreads, may still move (root mean square)
SETTLED = 4  # rounds: values that jump even then, between groups of merged counts, are held: they would go on to
FEWEST_GROUPS = 5.0  # of merged counts a site: with fewer, directions err so much that honest columns lie far out
MOST_GROUPS = 200.0  # … with more, values settle by themselves
MEASURING_ROUNDS = 4  # of those at the chosen rank, in which the noise is still measured; then it is fixed
STEADY = 0.02  # of themselves: scales of features that move by less are measured as well as they can be
REST = 0.03  # L moves by less than this share of the noise …
REST_OF_ERROR = 0.3  # … or of the statistical error of L
MOST_REST = 0.06  # … which with few features is mostly that of the columns' own coefficients
MOST_REST_JUDGED = 0.1  # … where the covariance judges entries, and not L
AT_MEDIAN = 1e-9  # of the spread: values that are the median but for rounding all count as not above it
MOST_PULL = 0.8**2 / 5**0.5 * TUKEY  # the largest ψ(x) of Tukey's biweight


class Refinement(ClosingStage):
    """Rounds of refinement."""

    def __init__(self, fit: Stage, width: int, bound: int | None, least: int, *, whole: bool) -> None:
        tensor = width + 2 + 2 * RESIDUAL_BINS.count + 2 * MARGINAL_BINS.count
        up = Layout(fit.down.rows, tensor, 3 + width + width * (width + 1) // 2 + OUTLYING_COUNTS)
        super().__init__(REFINE, fit, width, up, (REFINE, VALIDATE, *(SHAPE,) * whole, NULL), bound)
        self._least, self._most_rest = least, MOST_REST_JUDGED if whole else MOST_REST

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """The sums of a round, after its sample of the columns was fitted again."""
        plan, hidden = ClosingPlan.of(asked.broadcast), hidden_columns(site)
        hidden.hiding, model, columns = plan.hiding, plan.model, site.view.own.shape[1]
        total, V = np.zeros(self.up.size), np.zeros((columns, plan.rank))

        def read(first: int, last: int) -> Read:
            whole = hidden.columns.read(first, last)
            return [whole, hidden.shown_of(whole, first)]

        for places, (whole, M) in sampled_blocks(site, plan.refined_share, read):
            # Where this site took no part in the round before, V begins at the data alone.
            start = None if plan.fresh else carried_coefficients(site, model, places)
            V[places] = fit_freely(model, M) if start is None else fit_columns(model, M, start)
            total += refinement_update(plan, whole, M, V[places]).flat()
        keep_coefficients(site, model, V)
        update = TensorMessage.unflatten(self.up, total)
        return replace(update, scalars=np.append(columns / plan.columns, update.scalars[1:]))

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """Counts of residuals, of values and of columns along directions with small cells merged, lowest to highest.
        Nothing but the number of columns if fewer than `least` of the site are in the sample."""
        plan = ClosingPlan.of(asked.broadcast)
        n = plan.columns
        if plan.refined_share < 1.0 and np.rint(exact.scalars[1] * n) < least:
            none = TensorMessage(np.zeros_like(exact.tensor), np.zeros_like(exact.scalars))
            return replace(none, scalars=np.append(exact.scalars[:1], none.scalars[1:]))
        pull, shift, weight, *counts = _split(self.width, exact.tensor)
        over, under, above, below = (np.rint(part * n) for part in counts)
        under, over = merge_sides(under, over, least)
        below, above = merge_sides(below, above, least)
        tensor = np.column_stack([pull, shift, weight, *(part / n for part in (over, under, above, below))])
        scalars, along = np.split(exact.scalars, [-OUTLYING_COUNTS])
        return TensorMessage(tensor, np.append(scalars, Outlyingness.merged(np.rint(along * n), least) / n))

    def weighted(self, update: TensorMessage, weight: float) -> TensorMessage:
        """Pulls, weights and products with V, and of how many columns they are."""
        tensor, scalars = update.tensor.copy(), update.scalars.copy()
        tensor[:, : self.width + 2] *= weight
        scalars[2:-OUTLYING_COUNTS] *= weight
        return TensorMessage(tensor, scalars)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """One step of the rows, and the noise while it is measured; then the next stage, if it is due."""
        if not (np.isfinite(total.sums.tensor).all() and np.isfinite(total.sums.scalars).all()):
            return replace(consensus, outcome=Outcome.DIVERGED)
        asked = ClosingPlan.of(consensus.broadcast)
        totals = RefinementTotals.of(asked, total.sums)
        columns, done, final, limited = consensus.memory[COUNTERS]
        done, measuring = done + 1, not final or done < MEASURING_ROUNDS
        plan, moved = _stepped(asked, totals)
        if measuring:
            # Where nothing is merged, nothing may depend on how columns are split over sites.
            counted = asked.columns * min(asked.refined_share, 1.0)
            groups = counted if self._least == 1 else counted / (total.contributors * self._least)
            told = FEWEST_GROUPS <= groups <= MOST_GROUPS
            plan = _measured(asked, plan, totals, BOUND_ROUNDS + 1.0 if final else done, told)
            # At the final rank, merged counts of few columns make the noise fluctuate about its value; its mean
            # converges.
            share = 1.0 / done if final else 1.0
            plan = replace(plan, noise=asked.noise ** (1.0 - share) * plan.noise**share)
        steady = _steady(asked, plan)
        rests = bool(final) and (steady or not measuring) and moved < self._rest(plan)
        spent = bool(final) and done >= MOST_ROUNDS
        stage = self.name
        if rests or spent or (not final and (steady or done >= BOUND_ROUNDS)):
            stage, plan = self.after_fit(plan) if final else VALIDATE, replace(plan, hiding=False)
        if asked.refined_share >= 1.0:
            entries = (totals.above + totals.below).sum(axis=1)
            consensus = replace(consensus, memory={**consensus.memory, ENTRIES: entries})
        counters = (columns, done, final, float(bool(limited) or (spent and not rests)))
        return self.next_round(consensus, stage, plan, counters, moved)

    def _rest(self, plan: ClosingPlan) -> float:
        """How little L must move: a share of the noise, or of the error that any estimate of this rank has."""
        rows, columns = plan.U.shape[0], plan.columns * min(plan.refined_share, 1.0)
        freedom = plan.rank * (rows + columns) / (rows * columns)
        return float(np.clip(self._most_rest / MOST_REST * REST_OF_ERROR * np.sqrt(freedom), REST, self._most_rest))

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """A feature has one entry a column at most; all its counts are of the same entries; and VᵀV is a sum of
        squares, which bounds all products with V."""
        plan, sums = ClosingPlan.of(consensus.broadcast), total.sums
        n = plan.columns
        if not (np.isfinite(sums.tensor).all() and np.isfinite(sums.scalars).all()):
            return ""  # the run has diverged, and ends by that
        columns, counted = (float(share) for share in sums.scalars[:2])
        if reason := self.changed_columns(columns, total):
            return reason
        everybody = plan.refined_share >= 1.0
        if (unequal if everybody else exceeds)(counted, columns, 2.0 * total.rounding[1]):
            return "the sums are not of the columns that take part"
        rounding = total.rounding[0] * n
        _, _, _, *counts = _split(self.width, sums.tensor * n)
        for part in counts:
            if reason := broken_count(part, rounding, what="a count of entries"):
                return reason
        over, under, above, below = (part.sum(axis=1) for part in counts)
        shown, entries, summed = over + under, above + below, 2 * RESIDUAL_BINS.count * rounding
        if exceeds(entries, counted * n, summed + total.rounding[1] * n):
            return "a feature has more entries than there are columns"
        if (exceeds if plan.hiding else unequal)(shown, entries, 2.0 * summed):
            return "the counts of a feature's values and of its residuals are not of the same entries"
        known = consensus.memory.get(ENTRIES)
        if known is not None and total.whole and (unequal if everybody else exceeds)(entries, known, summed):
            return "the counts of a feature do not add up to its entries in earlier rounds"
        if reason := _broken_directions(sums.scalars * n, total.rounding[1] * n):
            return reason
        return self._broken_products(sums, total.rounding, shown / n)

    def _broken_products(self, sums: TensorMessage, rounding: tuple[float, float], entries: FloatArray) -> str:
        """Laws of products with V, per column."""
        pull, shift, weight, *_ = _split(self.width, sums.tensor)
        gram, mean = _gram(self.width, sums.scalars), sums.scalars[2 : 2 + self.width]
        if indefinite(gram, rounding[1]):
            return "the sum of squares of coefficients is negative"
        squares, slack = np.maximum(np.diag(gram), 0.0) + rounding[1], 3.0 * sum(rounding)
        if exceeds(mean**2, sums.scalars[1] * squares, slack * (1.0 + np.abs(mean).max(initial=0.0))):
            return "the sum of coefficients is larger than that of their squares allows"
        if exceeds(weight[:, 0], entries, slack) or exceeds(-weight[:, 0], 0.0, slack):
            return "the weights of a feature's entries are not between zero and one"
        if exceeds(np.abs(shift[:, 0]), MOST_PULL * entries, slack):
            return "the pull of a feature's entries is larger than that of any residuals"
        most = MOST_PULL * np.sqrt(np.outer(np.maximum(entries, 0.0) + slack, squares))
        if exceeds(np.abs(pull), most, slack):
            return "the pull of a feature along a direction is larger than that of any residuals"
        return ""


def _broken_directions(scalars: FloatArray, rounding: float) -> str:
    """Laws of the counts of columns along directions: every column is in each of them once."""
    columns, (calm, *counts) = scalars[1], scalars[-1 - OUTLYING_COUNTS :]
    if reason := broken_count(np.array(counts), rounding, columns + rounding, "a count of columns"):
        return reason
    if exceeds(calm, columns, rounding) or exceeds(-calm, 0.0, rounding):
        return "products with V are of a negative number of columns, or of more than there are"
    places, sizes = np.split(np.array(counts), [PLACES])
    along = places.reshape(2, DIRECTIONS, -1).sum(axis=(0, 2))
    slack = (2 * PLACE_BINS.count + OUTLYING_BINS.count + 1) * rounding
    if unequal(np.append(along, sizes.sum()), columns, slack):
        return "the counts of columns along a direction are not of all columns"
    return ""


def _stepped(asked: ClosingPlan, totals: RefinementTotals) -> tuple[ClosingPlan, float]:
    """The plan with the next subspace, and how far L moves by it."""
    subspace, moved = row_step(asked.subspace, totals.rows, asked.noise)
    U, variance = asked.U.copy(), asked.variance.copy()
    U[:, : asked.rank], variance[: asked.rank] = subspace.U, subspace.variance
    taken = float(np.rint(totals.rows.columns))
    return replace(asked, U=U, variance=variance, centre=subspace.centre, taken=taken, fresh=False), moved


def _measured(asked: ClosingPlan, plan: ClosingPlan, totals: RefinementTotals, done: float, told: bool) -> ClosingPlan:
    """The plan with the scales of features, and the figures of columns along directions, from the counts.

    Once these values hold still they are kept: what entries are judged by then depends neither on the number of rounds
    that the noise takes, nor on the rank. If some hold still, the others are kept as well, provided that merged counts
    have enough groups (`told`).
    """
    found = marginals(totals.above, totals.below, plan.median, plan.spread)
    moved = (found.median - asked.median) / found.spread, np.log(found.spread / asked.spread)
    # Directions are in units of the features: while these move, every column would look outlying.
    still, told = stand_still(moved, STILL, plan.columns), told and not searched_for(moved, STILL, plan.columns)
    outlying = plan.outlying.after(totals.outlying, still, settled=told and done > SETTLED + 1)
    holds = done > BOUND_ROUNDS or (outlying.cut > 0.0 and _hardly(moved))
    if not (holds and plan.outlying.cut > 0.0):
        plan = replace(plan, outlying=outlying, **({} if told and done > SETTLED else asdict(found)))
    leverage = leverage_of(asked.subspace, asked.model.ridge)
    return replace(plan, noise=fit_noise(totals.residuals, plan.noise, plan.spread, leverage, plan.one_value))


def _steady(asked: ClosingPlan, plan: ClosingPlan) -> bool:
    """Whether a round hardly moved the scales and medians of features, with columns set aside before and after it."""
    scales = np.log(plan.noise / asked.noise), np.log(plan.spread / asked.spread)
    known = asked.outlying.cut > 0.0 and plan.outlying.cut > 0.0
    return known and _hardly((*scales, (plan.median - asked.median) / plan.spread))


def _hardly(moves: tuple[FloatArray, ...]) -> bool:
    """Whether all of these moves are small."""
    return all(float(np.sqrt(np.mean(move**2))) <= STEADY for move in moves)


def _units(plan: ClosingPlan) -> FloatArray:
    """The deviation of each direction's coefficients, never zero."""
    largest = float(plan.variance.max(initial=0.0))
    return np.asarray(np.sqrt(np.maximum(plan.variance, max(1e-12 * largest, np.finfo(np.float64).tiny))))


def refinement_update(plan: ClosingPlan, whole: FloatArray, M: FloatArray, V: FloatArray) -> TensorMessage:
    """The sums of a refinement round over these columns, of which M is shown. Hidden entries are counted as well, so
    that features' scales, and all that entries are judged by, do not depend on which entries a site hides."""
    model, n, units, width = plan.model, plan.columns, _units(plan), plan.U.shape[1]
    L = model.low_rank(V)
    places = plan.outlying.places(whole, plan)
    calm = plan.outlying.calm_places(places)
    counts = [
        *count_sides(M - L, model.noise, RESIDUAL_BINS, AT_MEDIAN),
        *count_sides(whole - plan.median[:, None], plan.spread, MARGINAL_BINS, AT_MEDIAN),
    ]
    pull, weight = pulls(M, L, model.noise, calm)
    scaled = np.zeros((M.shape[1], width))
    scaled[calm, : plan.rank] = V[calm] / units[: plan.rank]
    tensor = np.column_stack([pull @ scaled, pull.sum(axis=1), weight, *counts])
    gram = (scaled.T @ scaled)[np.triu_indices(width)]
    head, outlying = [0.0, M.shape[1]], plan.outlying.counts(places)  # the site's columns are counted elsewhere
    scalars = np.concatenate([head, scaled.sum(axis=0), gram, [np.count_nonzero(calm)], outlying])
    return TensorMessage(tensor / n, scalars / n)


@dataclass(frozen=True, slots=True, eq=False)
class RefinementTotals:
    """The sums of a refinement round, read."""

    rows: RoundSums
    residuals: FloatArray  # counts of |R| per feature
    above: FloatArray  # counts of x − median where positive
    below: FloatArray  # counts of median − x elsewhere
    outlying: FloatArray  # counts of columns along directions

    @staticmethod
    def of(plan: ClosingPlan, sums: TensorMessage) -> RefinementTotals:
        """From the sum of `refinement_update` over sites, in the data's units."""
        n, units, width, rank = plan.columns, _units(plan), plan.U.shape[1], plan.rank
        pull, shift, weight, *counts = _split(width, sums.tensor * n)
        calm, *outlying = sums.scalars[-1 - OUTLYING_COUNTS :] * n
        gram = _gram(width, sums.scalars * n)[:rank, :rank] * np.outer(units[:rank], units[:rank])
        total = sums.scalars[2 : 2 + rank] * n * units[:rank]
        noise = plan.noise[:, None]
        # Counts are whole numbers, whatever the order of the sum: medians and scales must not depend on rounding.
        over, under, above, below = (np.rint(part) for part in counts)
        rows = RoundSums(
            pull=pull[:, :rank] * noise * units[:rank],
            shift=shift[:, 0] * plan.noise,
            middle=median_of_sides(over, under, plan.noise, RESIDUAL_BINS),
            weight=weight[:, 0],
            gram=gram,
            total=total,
            columns=float(calm),
        )
        return RefinementTotals(rows, over + under, above, below, np.rint(outlying))


def _split(width: int, tensor: FloatArray) -> list[FloatArray]:
    """The parts of a refinement tensor, as `refinement_update` has them in order."""
    ends = np.cumsum([width, 1, 1, RESIDUAL_BINS.count, RESIDUAL_BINS.count, MARGINAL_BINS.count])
    return np.split(tensor, ends, axis=1)


def _gram(width: int, scalars: FloatArray) -> FloatArray:
    """VᵀV from its upper triangle."""
    gram = np.zeros((width, width))
    gram[np.triu_indices(width)] = scalars[2 + width : -1 - OUTLYING_COUNTS]
    return np.asarray(gram + np.triu(gram, 1).T)

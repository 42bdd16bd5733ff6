"""Stage `validate`: how well each rank predicts entries, and the smallest rank that is nearly as good as the best.

The entries that the fit did not know are few, and which rank predicts them best depends on which they are. So the rank
is chosen by more entries: parts of the others, the same for the same data, each hidden from the fit of its column. The
directions were estimated with these, which makes errors smaller by the share r/n along r directions of n columns; this
share is added again. What a run says about its prediction rests only on entries that nothing had seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import Consensus, FloatArray, Kind, Layout, TensorMessage, Total
from dcfpca.rpca.refinement.alternating_fit import ColumnModel, carried_directions, fit_columns
from dcfpca.rpca.refinement.closing_plan import NULL, REFINE, SHAPE, VALIDATE, VERDICT, ClosingPlan, FitEnding
from dcfpca.rpca.refinement.closing_stage import (
    COUNTERS,
    CURVE,
    ClosingStage,
    Places,
    Read,
    hidden_columns,
    results,
    sampled_blocks,
)
from dcfpca.rpca.stage import Stage
from dcfpca.rpca.stage_checks import exceeds
from dcfpca.rpca.stage_list import StagedSite

CAP = 3.0  # an error larger than so many spreads counts as this: a hidden entry may be an outlier itself
NEAR = 5.0  # a hidden entry further from its feature's median, in spreads, is an outlier itself, and not judged
MARGIN = 1.05  # with many hidden entries standard errors are small, and directions that hardly help significant
MANY_FEW = 0.8  # of the features have few values: then prediction is judged on the others
PARTS, PREDICTED = 10, 4  # of the entries; those that are predicted for the choice of the rank
FEWER = 0.2  # of the columns that validate: so many tell errors of so many more entries as well
FEWEST = 0.05  # … of those that are enough for refinement, where not all take part
EVERY = 8  # up to this rank all ranks are tried, above every step of half


class Validation(ClosingStage):
    """One round, with the hidden entries shown to be predicted."""

    def __init__(self, fit: Stage, width: int, bound: int | None, *, whole: bool) -> None:
        sums = 2 * (2 + 3 * len(ranks_tried(width)))  # of hidden entries, and of those that the fit knows
        up = Layout(0, 0, sums, kinds=((sums, Kind.SHARE),))
        super().__init__(VALIDATE, fit, width, up, (REFINE, *(SHAPE,) * whole, NULL), bound)

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """Error sums of the hidden entries, and of parts of the others. A fit that is not refined has two ranks to
        judge, zero and its own."""
        plan = ClosingPlan.of(asked.broadcast)
        hidden, known = np.zeros((2, self.up.scalars // 2))
        if plan.ending is FitEnding.REFINED:
            of_hidden, of_known = shares_predicted(plan)

            def read(first: int, last: int) -> Read:
                return [site.view.whole.read(first, last)]

            for places, (M,) in sampled_blocks(site, of_hidden, read):
                judged, unjudged = _judged(site, plan, M, places)
                shown = np.where(unjudged, np.nan, M)
                errors = errors_by_rank(plan.model, plan.median, shown, judged, plan.spread)
                hidden += validation_sums(errors, judged.sum(axis=0).astype(np.float64))
            for places, (M,) in sampled_blocks(site, of_known, read):
                known += _sums_of_parts(plan, *_in_parts(site, plan, M, places))
            return TensorMessage(np.zeros((0, 0)), np.append(hidden, known) / plan.columns)
        for _, block in results(site, plan, hiding=True):
            places = np.arange(block.start, block.start + block.L.shape[1])
            M = site.view.whole.read(block.start, block.start + block.L.shape[1])
            judged, _ = _judged(site, plan, M, places)
            own = column_errors(M, block.L, judged, plan.spread)
            none = column_errors(M, plan.median[:, None], judged, plan.spread)
            errors = np.stack([none, *[own] * (len(ranks_tried(self.width)) - 1)])
            hidden += validation_sums(errors, judged.sum(axis=0).astype(np.float64))
        return TensorMessage(np.zeros((0, 0)), np.append(hidden, known) / plan.columns)

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """Nothing if fewer entries than `least` were predicted, or those of fewer columns of a sample: the errors would
        be about those alone. By Cauchy and Schwarz, so many columns at least have entries that add up to c, with the
        squares q of each column's: c²/q."""
        plan = ClosingPlan.of(asked.broadcast)
        halves = [
            half * (np.rint(half[0] * plan.columns) >= least)
            * (plan.sample_share >= 1.0 or half[0] ** 2 * plan.columns >= least * half[1])
            for half in np.split(exact.scalars, 2)
        ]  # fmt: skip
        return replace(exact, scalars=np.concatenate(halves))

    def weighted(self, update: TensorMessage, weight: float) -> TensorMessage:
        """Errors and counts, which choose the rank of U."""
        return replace(update, scalars=weight * update.scalars)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The rank, and rounds at it; or the null of a fit that is not refined."""
        plan = ClosingPlan.of(consensus.broadcast)
        hidden, known = np.split(total.sums.scalars * plan.columns, 2)
        curve, by_parts = (RankCurve.of(ranks_tried(self.width), sums) for sums in (hidden, known))
        columns, _, _, limited = consensus.memory[COUNTERS]
        refined, stage = plan.ending is FitEnding.REFINED, NULL
        shown = curve if refined else curve.of_one(plan.rank)
        table = np.column_stack([shown.ranks, shown.error, shown.standard_error])
        rank = plan.rank
        if refined:
            given = self._bound is None or (known[0] <= 0.0 and predictable(plan).any())
            found = self.width if given else by_parts.of_unknown(plan.columns).chosen()
            rank = min(found, carried_directions(plan.subspace, plan.noise))
        plan = _predicting(replace(plan, hiding=False), curve.predicted(rank))
        if refined and rank:
            stage, plan = REFINE, replace(plan, rank=rank, fresh=True)
        elif refined:
            plan = replace(plan, rank=0, centre=plan.median, noise=plan.spread)
            stage = self.after_fit(plan)
        kept = replace(consensus, memory={**consensus.memory, CURVE: table})
        return self.next_round(kept, stage, plan, (columns, 0.0, 1.0, limited), consensus.progress.change)

    def conserved(self, consensus: Consensus, total: Total) -> str:
        """Errors are capped, and squares are as large as sums make them."""
        for sums in np.split(total.sums.scalars, 2):
            if reason := self._broken_errors(sums, 4.0 * total.rounding[1], total.whole):
                return reason
        return ""

    def _broken_errors(self, sums: FloatArray, rounding: float, whole: bool) -> str:
        """Laws of `validation_sums`, per column; `whole` sums are of all sites."""
        if exceeds(-sums, 0.0, rounding):
            return "a sum of errors is negative"
        (count, squares), (errors, products, crossed) = sums[:2], np.split(sums[2:], 3)
        if exceeds(count, float(self.down.rows), rounding) or exceeds(count, squares, rounding):
            return "more entries are predicted than there are, or fewer squares than entries"
        if exceeds(errors, CAP * count, rounding) or exceeds(crossed, CAP * squares, rounding):
            return "an error is above the cap of errors"
        if exceeds(products, CAP**2 * squares, CAP**2 * rounding):
            return "the square of an error is above the cap of errors"
        if not whole:
            return ""
        if exceeds(errors**2, products, rounding * (1.0 + errors)) or exceeds(
            count**2, squares, rounding * (1 + count)
        ):
            return "the squares of errors are smaller than their sum allows"
        return ""


def shares_predicted(plan: ClosingPlan) -> tuple[float, float]:
    """The shares of all columns whose hidden entries are predicted, and parts of whose other entries are."""
    share = plan.sample_share
    return (share, FEWER * share) if share >= 1.0 else (FEWEST * share, FEWEST * share)


def _judged(
    site: StagedSite, plan: ClosingPlan, M: FloatArray, places: Places
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The hidden entries of these columns whose prediction is judged, and those that are outliers themselves."""
    hidden = hidden_columns(site).hidden_at(places) & ~np.isnan(M)
    judged = judged_entries(M, hidden, plan.median, plan.spread) & plan.calm(M) & predictable(plan)[:, None]
    return judged, hidden & ~judged


def _in_parts(
    site: StagedSite, plan: ClosingPlan, M: FloatArray, places: Places
) -> tuple[FloatArray, NDArray[np.uint64], NDArray[np.bool_]]:
    """These columns without the hidden entries, in which part every entry is, and whether its prediction is judged."""
    hidden = hidden_columns(site)
    M = np.where(hidden.hidden_at(places), np.nan, M)
    judged = judged_entries(M, ~np.isnan(M), plan.median, plan.spread) & plan.calm(M) & predictable(plan)[:, None]
    return M, hidden.parts(places, PARTS), judged


def _sums_of_parts(plan: ClosingPlan, M: FloatArray, part: NDArray[np.uint64], judged: NDArray[np.bool_]) -> FloatArray:
    """Error sums of the parts that are predicted, one after the other."""
    errors, counts = np.zeros((len(ranks_tried(plan.U.shape[1])), M.shape[1])), np.zeros(M.shape[1])
    for number in range(PREDICTED if plan.sample_share >= 1.0 else 1):  # more of a column tell less than more columns
        here = part == number
        shown, wanted = np.where(here & ~judged, np.nan, M), here & judged
        errors += errors_by_rank(plan.model, plan.median, shown, wanted, plan.spread)
        counts += wanted.sum(axis=0)
    return validation_sums(errors, counts)


def predictable(plan: ClosingPlan) -> NDArray[np.bool_]:
    """The features whose prediction is judged. The share of a binary feature predicts it better than its median, which
    is one of two values; that is no structure."""
    return ~plan.few | (np.mean(plan.few) <= MANY_FEW)


def _predicting(plan: ClosingPlan, share: float) -> ClosingPlan:
    """The plan with this figure in its verdict; the figures of the given plan belong to a broadcast and stay."""
    figures = plan.verdict.copy()
    figures[VERDICT.index("predicted")] = share
    return replace(plan, verdict=figures)


def ranks_tried(width: int) -> tuple[int, ...]:
    """0 (each feature's median), then the ranks whose errors are summed, up to the width."""
    ranks = list(range(min(width, EVERY) + 1))
    while ranks[-1] < width:
        ranks.append(min(width, ranks[-1] + max(1, ranks[-1] // 4)))
    return tuple(ranks)


def judged_entries(
    M: FloatArray, hidden: NDArray[np.bool_], median: FloatArray, spread: FloatArray
) -> NDArray[np.bool_]:
    """The hidden entries whose prediction is judged: by the data alone, so that all ranks are judged on the same."""
    near: NDArray[np.bool_] = np.abs(M - median[:, None]) <= NEAR * spread[:, None]
    return hidden & near


def column_errors(M: FloatArray, prediction: FloatArray, hidden: NDArray[np.bool_], spread: FloatArray) -> FloatArray:
    """Each column's sum of capped errors over its hidden entries, in units of the features' spreads."""
    errors = np.minimum(np.abs(M - prediction) / spread[:, None], CAP)
    return np.asarray(np.where(hidden, errors, 0.0).sum(axis=0))


def errors_by_rank(
    model: ColumnModel, median: FloatArray, M: FloatArray, hidden: NDArray[np.bool_], spread: FloatArray
) -> FloatArray:
    """`column_errors` of every rank tried (ranks × columns), the hidden entries taking no part in the fit."""
    shown = np.where(hidden, np.nan, M)
    rows = [column_errors(M, median[:, None], hidden, spread)]
    for rank in ranks_tried(model.U.shape[1])[1:]:
        leading = model.leading(rank)
        rows.append(column_errors(M, leading.low_rank(fit_columns(leading, shown, None)), hidden, spread))
    return np.stack(rows)


def validation_sums(errors: FloatArray, counts: FloatArray) -> FloatArray:
    """What of columns is summed: counts, their squares, then errors, their squares and products with counts."""
    sums = [np.array([counts.sum(), np.sum(counts**2)])]
    sums += [errors.sum(axis=1), np.sum(errors**2, axis=1), errors @ counts]
    return np.concatenate(sums)


@dataclass(frozen=True, slots=True, eq=False)
class RankCurve:
    """Error of entries by rank, relative to that of the features' medians, with standard errors."""

    ranks: tuple[int, ...]
    error: FloatArray
    standard_error: FloatArray

    @staticmethod
    def of(ranks: tuple[int, ...], sums: FloatArray) -> RankCurve:
        """From the sum of `validation_sums` over sites; standard errors by columns, whose entries belong together."""
        count, squares, *_ = sums
        total, products, crossed = np.split(sums[2:], 3)
        mean = total / max(count, 1e-300)
        variance = np.maximum(products - 2.0 * mean * crossed + mean**2 * squares, 0.0)
        base = float(total[0]) or float(total.max()) or 1.0  # medians may predict everything: then no rank does better
        return RankCurve(ranks, total / base, np.sqrt(variance) / base)

    def of_unknown(self, columns: float) -> RankCurve:
        """Errors as if the directions, estimated from this many columns, had not seen the entries either."""
        more = 1.0 + np.array(self.ranks) / max(columns, 1.0)
        return RankCurve(self.ranks, self.error * more, self.standard_error * more)

    def chosen(self) -> int:
        """The smallest rank whose error is within one standard error, and a twentieth, of the least."""
        least = int(np.argmin(self.error))
        good = self.error <= MARGIN * self.error[least] + self.standard_error[least]
        return self.ranks[int(np.flatnonzero(good)[0])]

    def of_one(self, rank: int) -> RankCurve:
        """Rank 0 and this rank, the only ones of a fit without a choice; its own error is repeated."""
        if rank == 0:
            return RankCurve((0,), self.error[:1], self.standard_error[:1])
        place = next(place for place, tried in enumerate(self.ranks) if tried >= rank)
        return RankCurve((0, rank), self.error[[0, place]], self.standard_error[[0, place]])

    def predicted(self, rank: int) -> float:
        """The share of the hidden entries' spread that this rank predicts; negative where it is worse than medians, and
        none where medians predict all."""
        places = [place for place, tried in enumerate(self.ranks) if tried >= rank]
        return float(self.error[0] - self.error[places[0]]) if places else float("nan")

"""Stage `check`, after the null: how many ordinary entries are flagged, and which sites carry which directions.

Each site forms its own view, draws new samples from it, and counts how many of their entries are flagged although all
of them are ordinary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import Calibration
from dcfpca.rpca.calibration.empirical_null import SIZE_BINS, units_by_side
from dcfpca.rpca.calibration.expectation import doubt
from dcfpca.rpca.column_blocks import units_of
from dcfpca.rpca.method import Consensus, FloatArray, Kind, Layout, Outcome, TensorMessage, Total
from dcfpca.rpca.own_view.carriers import FAILS, carried, error_ratio
from dcfpca.rpca.own_view.own_view import kept_arrays, kept_view, own_plan, sample_of
from dcfpca.rpca.own_view.slips import Slips, kept_slips, slip_shares
from dcfpca.rpca.refinement.closing_plan import CHECK, VERDICT, ClosingPlan, local_rate
from dcfpca.rpca.refinement.closing_stage import (
    CARRIERS,
    COUNTERS,
    WANTED,
    ClosingStage,
    hidden_columns,
    sampled_blocks,
)
from dcfpca.rpca.refinement.hidden_entries import HiddenColumns
from dcfpca.rpca.refinement.noise_scale import count_sizes
from dcfpca.rpca.refinement.null import furthest_usual
from dcfpca.rpca.refinement.scoring import Scored, expect_entries, score_twice
from dcfpca.rpca.stage import Partition, Stage
from dcfpca.rpca.stage_checks import SLACK, broken_count, exceeds, indefinite
from dcfpca.rpca.stage_list import StagedSite

SUMS, FLAGGED = 4, 2  # shares of entries flagged anew, drawn and flagged, and the vote; the place of the third
DRAWN, MOST_DRAWN = 20_000, 200_000  # entries that a site draws at least and at most, for its own samples in turn
SURE = 0.95  # of the interval that is told
# Of the flagged entries, that are ordinary beyond what samples drawn anew tell: real tables have rare values far out,
# which are not drawn because they are flagged. Twelve with known errors had .6 % on average and seldom more than 5;
# where samples are few for the features, there are as many more as tails are in doubt.
UNTOLD, MOST_UNTOLD = 0.0075, 0.05
Places = NDArray[np.intp]


class Check(ClosingStage):
    """The last round of a run whose entries are judged by their whole covariance: sites form their own views, draw new
    samples from them, and say which directions they carry and whether the shared model serves them."""

    def __init__(self, fit: Stage, width: int, bound: int | None, rate: float, min_carriers: int) -> None:
        sums = SUMS + width * (width + 1) // 2
        super().__init__(CHECK, fit, width, Layout(0, 0, sums, kinds=((sums, Kind.SHARE),)), (), bound)
        self._local, self._min_carriers = local_rate(rate, fit.down.rows), min_carriers

    def answer(self, site: StagedSite, asked: Consensus) -> TensorMessage:
        """How many entries are flagged of samples drawn from the own fit, how many were drawn and how many are flagged,
        per own entry; and what the site adds to the vote and to the directions' carriers."""
        plan = ClosingPlan.of(asked.broadcast)
        arrays, anew, votes = self._own_view(hidden_columns(site), plan)
        return self._update(plan, anew, CheckPart(asked, arrays)(site), votes)

    def combine(self, partition: Partition, asked: Consensus) -> TensorMessage:
        """The own view and what is drawn from it are of the whole site; its parts count their entries."""
        plan = ClosingPlan.of(asked.broadcast)
        assert isinstance(partition.columns, HiddenColumns)  # a method with closing stages hides entries
        arrays, anew, votes = self._own_view(partition.columns, plan)
        return self._update(plan, anew, partition.total(CheckPart(asked, arrays)), votes)

    def merged(self, exact: TensorMessage, asked: Consensus, least: int) -> TensorMessage:
        """Drawn samples belong to nobody; a count of fewer than `least` flagged entries is sent as zero."""
        plan, scalars = ClosingPlan.of(asked.broadcast), exact.scalars.copy()
        scalars[FLAGGED] *= scalars[FLAGGED] * plan.columns * plan.U.shape[0] >= least - 0.5
        return replace(exact, scalars=scalars)

    def _own_view(
        self, hidden: HiddenColumns, plan: ClosingPlan
    ) -> tuple[dict[str, NDArray[np.generic]], float, FloatArray]:
        """What the site keeps of its own view, the entries flagged of drawn samples, and its vote and projector."""
        M, unknown = sample_of(hidden)
        ratio, projector = error_ratio(plan, M, unknown), carried(plan, M)
        mine = own_plan(plan, M, self._local)
        assert mine.calibration is not None
        units = units_of(hidden.columns)
        slips = slip_shares(mine.calibration, mine.columns, M, expect_entries(mine, M, M), units, self._local)
        anew = flagged_anew(plan, mine, slips, M, np.random.default_rng([hidden.seed, 0]))
        votes = np.append(float(ratio > FAILS), projector[np.triu_indices(self.width)])
        anew = anew * hidden.shape[1] / M.shape[1] * min(plan.sample_share, 1.0)
        return kept_arrays(mine, ratio) | slips.arrays(), anew, votes

    def _update(self, plan: ClosingPlan, anew: float, counted: FloatArray, votes: FloatArray) -> TensorMessage:
        shares = np.append(anew, counted) / plan.columns / plan.U.shape[0]
        return TensorMessage(np.zeros((0, 0)), np.concatenate([shares, votes]))

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The expected number of ordinary entries among the flagged, who carries what, and the end of the run."""
        plan = ClosingPlan.of(consensus.broadcast)
        assert plan.calibration is not None
        drawn, votes, projectors = self._read(total.sums.scalars)
        projectors = projectors[: plan.rank, : plan.rank]
        of_sample = np.maximum(drawn, 0.0) * plan.columns * plan.U.shape[0]
        ordinary, entries, flagged = of_sample / min(plan.sample_share, 1.0)
        untold = flagged * doubt(plan.U.shape[0], plan.columns)
        found = {
            "ordinary": ordinary + UNTOLD * untold,
            "ordinary_most": most_ordinary(ordinary + MOST_UNTOLD * untold),
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
            return "more entries of drawn samples are flagged than were drawn"
        if exceeds(flagged, entries, slack):
            return "more entries are flagged than there are"
        if reason := broken_count(np.array([votes]), slack, most, "the vote of the sites"):
            return reason
        # Where all sites carry everything, only rounding is left of the rest, and no size to hold it against.
        rest = most * np.eye(self.width) - projectors
        if indefinite(projectors, slack) or indefinite(rest, slack + SLACK * most):
            return "the number of a direction's carriers is negative, or above the number of sites"
        return ""

    def _read(self, scalars: FloatArray) -> tuple[FloatArray, float, FloatArray]:
        """Shares of entries, votes, and the sum of the sites' projectors."""
        upper = np.zeros((self.width, self.width))
        upper[np.triu_indices(self.width)] = scalars[SUMS:]
        return scalars[: SUMS - 1], float(scalars[SUMS - 1]), np.asarray(upper + np.triu(upper, 1).T)


@dataclass(frozen=True, slots=True, eq=False)
class CheckPart:
    """Asks a site, or a part of one, to keep the site's own view and to count by it."""

    asked: Consensus
    arrays: dict[str, NDArray[np.generic]]

    def __call__(self, site: StagedSite) -> FloatArray:
        """How many entries there are, and how many are flagged, in its sample of the columns."""
        site.kept.update(self.arrays)
        plan, total = ClosingPlan.of(self.asked.broadcast), np.zeros(SUMS - 2)
        mine, slips = kept_view(plan, site.kept), kept_slips(site.kept)
        for _, (M,) in sampled_blocks(site, plan.sample_share, lambda *cut: [site.view.whole.read(*cut)]):
            total += np.count_nonzero(~np.isnan(M)), np.count_nonzero(_scored(plan, mine, slips, M).flagged)
        return total


def _scored(plan: ClosingPlan, mine: ClosingPlan | None, slips: Slips | None, M: FloatArray) -> Scored:
    """Columns by both views; by a whole covariance, which needs no coefficients."""
    return score_twice(plan, mine, M, M, np.zeros((M.shape[1], plan.U.shape[1])), slips)[0]


def most_ordinary(expected: float) -> float:
    """The count below which a Poisson number of this mean stays with probability SURE; allows for the mean's own
    error."""
    return float(np.ceil(scipy.special.gammaincinv(expected + 1.0, SURE) + 1.0))


def flagged_anew(
    shared: ClosingPlan, own: ClosingPlan, slips: Slips | None, M: FloatArray, rng: np.random.Generator
) -> float:
    """How many ordinary entries are flagged in samples drawn from the site's view. Each of these samples (m × n) has
    one drawn after it, with gaps in the same places, and with its flagged entries as far off as they are, since errors
    cast doubt on their neighbours. Units are those of the drawn samples: where relations are nearly exact, the model
    has more noise than the data."""
    assert own.calibration is not None
    scored, places = _scored(shared, own, slips, M), _places(M)
    shape, flagged = own.calibration.shape, scored.flagged[:, places]
    drawn = _drawn(own.calibration, len(places), rng)
    M_anew = _with_values(own.calibration, np.where(scored.flagged, np.nan, M), drawn)
    M_anew = np.where(flagged | np.isnan(M[:, places]), np.nan, M_anew)
    by_all, by_own = (with_units_of(view, M_anew) for view in (shared, own))
    off = np.where(scored.flagged, shape.forward(M) - shape.forward(scored.others.value), 0.0)[:, places]
    wrong = shape.backward(own.calibration.mean[:, None] + drawn + off)
    found = _scored(by_all, by_own, slips, np.where(flagged, wrong, M_anew)).flagged
    return float(np.count_nonzero(found & ~flagged) * M.shape[1] / max(places.size, 1))


def _places(M: FloatArray) -> Places:
    """The samples after which new ones are drawn: all in turn, as often as DRAWN entries need, or evenly spaced ones
    where they have more than MOST_DRAWN entries."""
    seen = int(np.count_nonzero(~np.isnan(M)))
    every = slice(None, None, 1 + seen // MOST_DRAWN)
    return np.tile(np.arange(M.shape[1])[every], int(np.clip(DRAWN // max(seen, 1), 1, 20)))


def _drawn(known: Calibration, count: int, rng: np.random.Generator) -> FloatArray:
    """Draws scores of this many samples about their mean; what each feature has of its own has the tails of the
    null."""
    factor, own = known.factor, np.sqrt(known.own)[:, None]
    tails = known.unit * rng.standard_t(known.freedom, size=(len(factor), count))
    return np.asarray(factor @ rng.normal(size=(factor.shape[1], count)) + own * tails)


def _with_values(known: Calibration, values: FloatArray, drawn: FloatArray) -> FloatArray:
    """Entries with these scores about their mean. Those of a bent feature run along its own values (m × n, NaN: none).
    Those of a straight one do not: gaps between few values would break exact linear relations."""
    spread = np.sqrt(np.sum(known.factor**2, axis=1) + known.own)[:, None]
    level, made = scipy.special.ndtr(drawn / spread), known.shape.backward(known.mean[:, None] + drawn)
    for row in np.flatnonzero(~known.shape.straight()):
        own = np.sort(values[row, ~np.isnan(values[row])])
        if own.size:
            made[row] = np.interp(level[row] * own.size - 0.5, np.arange(own.size), own)
    return made


def with_units_of(plan: ClosingPlan, M: FloatArray) -> ClosingPlan:
    """The plan with the units that deviations have in these columns; features of few values keep theirs."""
    known = plan.calibration
    assert known is not None
    z, few, one, furthest = expect_entries(plan, M, M).z, known.of_few_values, np.ones(len(M)), furthest_usual(plan)
    sides = np.where(z > 0.0, z, np.nan), np.where(z > 0.0, np.nan, -z)
    above, below = (units_by_side(count_sizes(side, one, SIZE_BINS), few, furthest) for side in sides)
    above, below = np.where(few, known.above, above), np.where(few, known.below, below)
    return replace(plan, calibration=replace(known, above=above, below=below))

"""What the closing stages have in common: their plan, how it is checked, and the results of a run that ends in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import Calibration, calibrations_apart, implausible
from dcfpca.rpca.calibration.expectation import ScoreModel
from dcfpca.rpca.calibration.instruments import scan_block
from dcfpca.rpca.calibration.leave_one_out import moves_by_one
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import (
    ColumnScores,
    Consensus,
    FloatArray,
    Layout,
    Progress,
    ResultBlock,
    TensorMessage,
    Total,
    Verdict,
)
from dcfpca.rpca.own_view.own_view import kept_ratio, kept_view
from dcfpca.rpca.own_view.slips import Slips, kept_slips
from dcfpca.rpca.refinement.alternating_fit import ColumnModel, better_of, fit_columns, fit_freely, principal
from dcfpca.rpca.refinement.closing_plan import (
    CHECK,
    CLOSING,
    COVARIANCE,
    FEATURE_COLUMNS,
    NULL,
    SHAPE,
    ClosingPlan,
    FitEnding,
    closing_layout,
)
from dcfpca.rpca.refinement.hidden_entries import HiddenColumns
from dcfpca.rpca.refinement.scoring import findings_of, score_twice
from dcfpca.rpca.refinement.verdict import verdict_of
from dcfpca.rpca.stage import Snapshot, Stage
from dcfpca.rpca.stage_checks import (
    APART,
    ROUNDING,
    TOLERANCE,
    implausible_columns,
    is_orthonormal,
    of_directions,
    of_figures,
    of_strengths,
    unequal,
    worst,
)
from dcfpca.rpca.stage_list import StagedSite

COUNTERS = (
    "closing/counters"  # the keys of a consensus' memory: columns, rounds done, whether at the final rank, limited
)
CURVE = "closing/curve"
CARRIERS, WANTED = "closing/carriers", "closing/wanted"  # the sum of projectors, and how many sites must carry
# Of a site's own arrays: subspace and centre that it answered last, and its columns' coefficients about that centre.
KEPT_U, KEPT_V, KEPT_CENTRE = "U", "V", "centre"
MADE_BY = "made_by"  # … by what entries were distrusted when the covariance was made
COLUMNS_CHANGED = "the sites do not have the columns that they had in the opening"


class ClosingStage(Stage):
    """A stage after the fit, whose broadcast is a `ClosingPlan`. `fit` is the stage that it follows."""

    def __init__(self, name: str, fit: Stage, width: int, up: Layout, then: Sequence[str], bound: int | None) -> None:
        """`bound` is the bound on the rank, where the rank is to be found."""
        down = closing_layout(fit.down.rows, width, fit.down, calibrated=name in (COVARIANCE, NULL, CHECK))
        super().__init__(name, down=down, up=up, then=then)
        self.fit, self.width, self._bound = fit, width, bound

    def plausible(self, announced: Consensus, before: Consensus | None, precision: int) -> str:
        """Orthonormal directions, positive scales, and the columns of the round before."""
        try:
            plan = ClosingPlan.of(announced.broadcast)
        except ValueError as error:
            return f"the plan of a closing round cannot be read: {error}"
        if not 0 <= plan.rank <= plan.U.shape[1]:
            return "the plan of a closing round has an impossible rank"
        if plan.ending is FitEnding.REFINED and not is_orthonormal(plan.subspace.U):
            return "the directions of U that enter L are not orthonormal"
        if not all((scale > 0.0).all() for scale in (plan.noise, plan.spread, plan.null_scale)):
            return "a feature's noise or spread is not positive"
        if (plan.variance < 0.0).any():
            return "a variance is negative"
        if plan.sample_null.scale < 0.0 or plan.sample_null.freedom < 0.0:
            return "the null of samples has an impossible form"
        if not 0.0 <= plan.taken <= plan.columns * (1.0 + 1e-9):
            return "the model is made from more columns than there are"
        if reason := plan.outlying.implausible():
            return reason
        if plan.calibration is not None and (reason := implausible(plan.calibration)):
            return reason
        return implausible_columns(plan.columns, self._columns_before(before), precision)

    def _columns_before(self, before: Consensus | None) -> float | None:
        """The columns of all sites as announced in the round before. A site that believed another number when closing
        rounds begin would answer for another share of its columns than the others."""
        if before is None or before.stage not in (*CLOSING, self.fit.name):
            return None
        return self.all_columns(before) if before.stage in CLOSING else self.fit.all_columns(before)

    def difference(self, expected: Consensus, announced: TensorMessage) -> float:
        """Each feature's figures in their own size, centre and median in that of its spread; each direction in its own
        variance; and what of the fit is carried along, as the fit compares it."""
        one, other = ClosingPlan.of(expected.broadcast), ClosingPlan.of(announced)
        if any(getattr(one, name) != getattr(other, name) for name in ("ending", "hiding", "fresh", "rank")):
            return APART
        rows, refined = one.U.shape[0], one.ending is FitEnding.REFINED
        sizes: dict[str, FloatArray | float | None] = dict.fromkeys(FEATURE_COLUMNS)
        sizes |= {"one_value": 1.0, "two_values": 1.0}
        sizes |= {name: one.spread + ROUNDING * rows / TOLERANCE * np.abs(getattr(one, name)) for name in LOCATIONS}
        fits = [replace(expected, stage=self.fit.name, broadcast=plan.fit) for plan in (one, other)]
        if refined:  # then U is that of the refinement, and not compared by the singular values of the fit
            fits = [replace(fit, broadcast=TensorMessage(one.U, fit.broadcast.scalars)) for fit in fits]
        return worst(
            of_figures(one.columns, other.columns),
            of_figures(one.cut, other.cut),
            of_figures(one.distance_scale, other.distance_scale),
            of_figures(one.taken, other.taken),
            one.outlying.apart(other.outlying),
            of_figures(one.sample_null.scalars(), other.sample_null.scalars(), 1.0),
            of_figures(one.verdict, other.verdict, np.maximum(np.abs(one.verdict), 1.0)),
            *(of_figures(getattr(one, name), getattr(other, name), size) for name, size in sizes.items()),
            of_strengths(one.variance, other.variance, one.variance, rows),
            of_directions(one.U, other.U, one.variance) if refined else 0.0,
            self.fit.difference(fits[0], fits[1].broadcast),
            calibrations_apart(one.calibration, other.calibration),
        )

    def all_columns(self, asked: Consensus) -> float:
        """The number in the plan."""
        return ClosingPlan.of(asked.broadcast).columns

    def changed_columns(self, share: float, total: Total) -> str:
        """The law that the columns of all sites are those of the opening."""
        return COLUMNS_CHANGED if total.whole and unequal(share, 1.0, total.rounding[1]) else ""

    def after_fit(self, plan: ClosingPlan) -> str:
        """The stage that follows when L is at rest: entries of few features are judged by their whole covariance."""
        return SHAPE if plan.ending is FitEnding.REFINED and SHAPE in self.then else NULL

    def next_round(
        self, consensus: Consensus, stage: str, plan: ClosingPlan, counters: Sequence[float], moved: float
    ) -> Consensus:
        """The consensus after this round."""
        if stage in (COVARIANCE, NULL, CHECK) and plan.calibration is None:
            unknown = Calibration.unknown(len(plan.centre))
            plan = replace(plan, calibration=replace(unknown, few=plan.few.astype(np.float64)))
        kept = plan.subspace
        values = np.sqrt(kept.variance * plan.columns)
        progress = Progress(moved, plan.rank, float(np.median(plan.noise)), float("nan"), values)
        memory = {**consensus.memory, COUNTERS: np.array(counters, dtype=np.float64)}
        return Consensus(consensus.round + 1, stage, plan.broadcast(), memory, progress)

    def model(self, consensus: Consensus) -> dict[str, FloatArray]:
        """The model of the fit, or of its refinement, with the centre and null of every feature. At the aggregator it
        has the directions alone that enough sites carry."""
        plan = ClosingPlan.of(consensus.broadcast)
        features = {name: getattr(plan, name) for name in FEATURE_COLUMNS}
        curve = {"curve": consensus.memory.get(CURVE, np.zeros((0, 3)))}
        if plan.ending is not FitEnding.REFINED:
            return self.fit.model(replace(consensus, stage=self.fit.name, broadcast=plan.fit)) | features | curve
        kept, carried = plan.subspace, carried_by_enough(consensus)
        U, variance = kept.U, kept.variance
        if carried.shape[1] < plan.rank:
            U, variance = principal(U @ carried, (carried.T * variance) @ carried)
        return {"U": U, "singular_values": np.sqrt(variance * plan.columns), "variance": variance} | features | curve

    def verdict(self, consensus: Consensus, features: Sequence[str]) -> Verdict | None:
        """Whether the answer can be trusted, once the closing rounds are held."""
        if consensus.outcome is None:
            return None
        found = verdict_of(ClosingPlan.of(consensus.broadcast), consensus.outcome, self._bound, features)
        return replace(found, notes=(*found.notes, *carrier_notes(consensus)))

    def finish(self, site: StagedSite, asked: Consensus) -> Iterator[ResultBlock]:
        """L, the flagged outliers and the scores of every block."""
        plan, shape = with_made_by(ClosingPlan.of(asked.broadcast), site.kept), site.view.own.shape
        mine, flagged, seen, squares, unusual = kept_view(plan, site.kept), 0, 0, 0.0, 0.0
        slips = kept_slips(site.kept)
        for M, block in results(site, plan, hiding=False):
            places = np.arange(block.start, block.start + M.shape[1])
            scored = _scored(plan, mine, slips, M, block, refined_here(site, plan, places))
            unusual += float(scored.usual_here.sum()) if scored.usual_here is not None else 0.0
            R = np.where(np.isnan(M), 0.0, M - scored.L) - scored.S.toarray()
            flagged, seen = flagged + scored.S.nnz, seen + int(np.count_nonzero(~np.isnan(M)))
            squares += float(np.sum(R**2))
            yield scored
        own = site.fit.certificate() if plan.ending is not FitEnding.REFINED else {}
        site.figures = own | {
            "outlier_share": flagged / max(seen, 1),
            "missing_share": 1.0 - seen / max(shape[0] * shape[1], 1),
            "residual_rms": float(np.sqrt(squares / max(seen, 1))),
        }
        if mine is not None:
            site.figures |= {"unusual_elsewhere_share": unusual / max(seen, 1), "error_ratio": kept_ratio(site.kept)}


Places = NDArray[np.intp]
Read = list[NDArray[Any]]
LOCATIONS = ("centre", "median")  # figures that may be zero, or far from it


def hidden_columns(site: StagedSite) -> HiddenColumns:
    """The site's columns with hidden entries."""
    assert site.view.hidden is not None  # a method with closing stages hides entries
    return site.view.hidden


def sampled_blocks(site: StagedSite, share: float, read: Callable[[int, int], Read]) -> Iterator[tuple[Places, Read]]:
    """The places of this share of the site's columns, chosen by their content, and what `read` gives of them: about as
    many columns at a time as a block has."""
    places, found, count = list[Places](), list[Read](), site.view.own.shape[1]
    for first, last in blocks(site.view.own):
        chosen = hidden_columns(site).sampled(first, last, share)
        if chosen.any():
            places.append(first + np.flatnonzero(chosen))
            found.append([part if chosen.all() else part[:, chosen] for part in read(first, last)])
        if share >= 1.0:
            yield places.pop(), found.pop()
        elif places and (last == count or sum(map(len, places)) >= last - first):
            yield np.concatenate(places), [np.concatenate(parts, axis=1) for parts in zip(*found, strict=True)]
            places, found = [], []


def carried_coefficients(site: StagedSite, model: ColumnModel, places: Places | slice) -> FloatArray | None:
    """The coefficients of these columns in the model, from the last round that this site answered; None before any.

    They follow the centre, which moves along the subspace as well. Where noise is small it moves by many noises, and
    coefficients that stayed behind would leave every entry without weight.
    """
    if KEPT_U not in site.kept:
        return None
    before, V = (np.asarray(site.kept[name], dtype=np.float64) for name in (KEPT_U, KEPT_V))
    moved = np.asarray(site.kept.get(KEPT_CENTRE, model.centre), dtype=np.float64) - model.centre
    return np.asarray(V[places] @ (before.T @ model.U) + moved @ model.U)


def results(site: StagedSite, plan: ClosingPlan, hiding: bool) -> Iterator[tuple[FloatArray, ResultBlock]]:
    """Data and result of every block, before flags; hidden entries shown or not."""
    hidden = hidden_columns(site)
    hidden.hiding = hiding
    if plan.ending is not FitEnding.REFINED:
        for block in site.fit.finish(plan.fit):
            yield hidden.read(block.start, block.start + block.L.shape[1]), block
        return
    for first, last in blocks(site.view.own):
        M = hidden.read(first, last)
        V = coefficients(site, plan, M, np.arange(first, last))
        yield M, ResultBlock(first, plan.model.low_rank(V[:, : plan.rank]), scipy.sparse.csc_array(M.shape), V)


def coefficients(site: StagedSite, plan: ClosingPlan, M: FloatArray, places: Places) -> FloatArray:
    """Coefficients of these columns, as many as the plan's U has: from the data alone, or, where it is better, from
    those of the last round that the column took part in."""
    model, wide = plan.model, np.zeros((M.shape[1], plan.U.shape[1]))
    V, refined = fit_freely(model, M), refined_here(site, plan, places)
    own = slice(None) if refined.all() else np.flatnonzero(refined)
    if (start := carried_coefficients(site, model, places[own])) is not None and refined.any():
        V[own] = better_of(model, M[:, own], V[own], fit_columns(model, M[:, own], start))
    wide[:, : plan.rank] = V
    return wide


def refined_here(site: StagedSite, plan: ClosingPlan, places: Places) -> NDArray[np.bool_]:
    """Which of these columns, in ascending order, take part in the refinement at the final rank."""
    if plan.refined_share >= 1.0 or not places.size:
        return np.ones(places.size, dtype=bool)
    first = int(places[0])
    return hidden_columns(site).sampled(first, int(places[-1]) + 1, plan.refined_share)[places - first]


def keep_coefficients(site: StagedSite, model: ColumnModel, V: FloatArray) -> None:
    """Keep these coefficients, from which the next round starts."""
    arrays: dict[str, NDArray[np.generic]] = {KEPT_U: model.U, KEPT_V: V, KEPT_CENTRE: model.centre}
    site.kept.update(arrays)


def keep_made_by(site: StagedSite, plan: ClosingPlan) -> None:
    """Keep by what entries were distrusted when the covariance was made, where a sample moves it."""
    assert plan.calibration is not None  # of a run whose entries are judged by their covariance
    model = plan.calibration.model
    if moves_by_one(len(model.centre), plan.taken):
        site.kept[MADE_BY] = np.column_stack([model.centre, model.own, model.factor])


def with_made_by(plan: ClosingPlan, kept: Snapshot) -> ClosingPlan:
    """The plan with what the site kept of that."""
    if MADE_BY not in kept or plan.calibration is None:
        return plan
    held = np.asarray(kept[MADE_BY], dtype=np.float64)
    return replace(plan, made_by=ScoreModel(held[:, 0], held[:, 2:], held[:, 1], plan.calibration.of_few_values))


def carried_by_enough(consensus: Consensus) -> FloatArray:
    """Orthonormal combinations of the directions that enough sites carry; all directions if no direction is carried by
    that many, or if only the aggregator could know. One site's direction is spread over several columns of U, so
    dropping columns would not do."""
    rank = ClosingPlan.of(consensus.broadcast).rank
    if CARRIERS not in consensus.memory:
        return np.eye(rank)
    values, vectors = np.linalg.eigh(consensus.memory[CARRIERS])
    enough = values > consensus.memory[WANTED][0] - 0.5
    return vectors[:, enough] if enough.any() else np.eye(rank)


def carrier_notes(consensus: Consensus) -> tuple[str, ...]:
    """How many sites carry the directions that are not published; only the aggregator knows this."""
    rank = ClosingPlan.of(consensus.broadcast).rank
    left = rank - carried_by_enough(consensus).shape[1]
    if not left:
        return ()
    carriers = np.sort(np.linalg.eigvalsh(consensus.memory[CARRIERS]))[:left]
    counts, wanted = ", ".join(f"{abs(count):.0f}" for count in carriers), consensus.memory[WANTED][0]
    told = f"Not published, because fewer than {wanted:.0f} sites carry them: {left} of {rank} directions"
    return (f"{told} (carried by {counts}).",)


def _scored(
    plan: ClosingPlan,
    mine: ClosingPlan | None,
    slips: Slips | None,
    M: FloatArray,
    block: ResultBlock,
    refined: NDArray[np.bool_],
) -> ResultBlock:
    """The block with its scores, and with outliers by the null where the fit's own are not exact; `refined` columns
    took part in what the model is made from."""
    if not plan.has_null:
        return block
    scored, shared = score_twice(plan, mine, M, block.L, block.V, slips, refined)
    scores = ColumnScores(scored.p_value, scored.largest_z, scored.distance)
    block = replace(block, scores=scores, scanned=scan_block(M, scored.z, plan.null_scale))
    if plan.ending is FitEnding.EXACT:
        return block
    S, found = findings_of(scored, M, block.L, shared.z)
    usual = shared.flagged & ~scored.flagged
    sides = np.column_stack([np.count_nonzero(usual & side, axis=1) for side in (shared.z > 0.0, shared.z <= 0.0)])
    return replace(block, S=S, findings=found, usual_here=sides.astype(np.float64))

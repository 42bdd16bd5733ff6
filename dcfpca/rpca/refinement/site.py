"""A participant's side of a run with closing rounds, around its side of the method that fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Columns, ColumnScores, FloatArray, Method, ResultBlock, Site, Stage, TensorMessage
from dcfpca.rpca.refinement.closing_plan import FEATURE_COLUMNS, ClosingPlan, FitEnding
from dcfpca.rpca.refinement.closing_sums import null_update, refinement_update
from dcfpca.rpca.refinement.column_fit import better_of, fit_columns, objective_by_column
from dcfpca.rpca.refinement.hidden_entries import HiddenColumns
from dcfpca.rpca.refinement.rank_selection import (
    column_errors,
    errors_by_rank,
    judged_entries,
    ranks_tried,
    validation_sums,
)
from dcfpca.rpca.refinement.scoring import score_columns, squared_distance

PREFIX = "fit/"  # of the inner site's arrays in a snapshot


class StagedSite:
    """Fits by the inner method with some entries hidden, then refines, predicts the hidden entries, and scores."""

    def __init__(self, inner: Method, columns: Columns, width: int, share: float, seed: int) -> None:
        self._columns, self._width = columns, width
        self.hidden = HiddenColumns(columns, share, seed)
        self.inner: Site = inner.site(self.hidden)
        self._blocks = blocks(columns)
        self._U = np.zeros((columns.shape[0], 0))
        self._V = np.zeros((columns.shape[1], 0))
        self._certificate: dict[str, float] = {}

    def answer(self, round: int, broadcast: TensorMessage) -> TensorMessage:
        """The inner site's answer while the method fits, then the sums of the closing round that is asked for."""
        if not self._closing(broadcast):
            self.hidden.hiding = True
            return self.inner.answer(round, broadcast)
        plan = ClosingPlan.of(broadcast)
        match plan.stage:
            case Stage.REFINE:
                return self._refine(plan)
            case Stage.VALIDATE:
                return self._validate(plan)
            case _:
                return self._null(plan)

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """The inner site's state, the coefficients of the refinement, and what decides which entries are hidden."""
        inside = {PREFIX + name: array for name, array in self.inner.snapshot().items()}
        return {**inside, "U": self._U, "V": self._V, "keys": self.hidden.keys}

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Take up an earlier snapshot."""
        own = {name.removeprefix(PREFIX): array for name, array in snapshot.items() if name.startswith(PREFIX)}
        self.inner.restore(own)
        self._U = np.array(snapshot["U"], dtype=np.float64)
        self._V = np.array(snapshot["V"], dtype=np.float64)
        self.hidden.keys = np.array(snapshot["keys"], dtype=np.uint64)

    def finish(self, broadcast: TensorMessage) -> Iterator[ResultBlock]:
        """L, the flagged outliers and the scores of every block. Leaves the state of the site as it was."""
        if not self._closing(broadcast):
            yield from self.inner.finish(broadcast)
            self._certificate = self.inner.certificate()
            return
        plan = ClosingPlan.of(broadcast)
        flagged, seen, squares = 0, 0, 0.0
        for M, block in self._results(plan, hiding=False):
            scored = _scored(plan, M, block)
            R = np.where(np.isnan(M), 0.0, M - scored.L) - scored.S.toarray()
            flagged, seen = flagged + scored.S.nnz, seen + int(np.count_nonzero(~np.isnan(M)))
            squares += float(np.sum(R**2))
            yield scored
        own = self.inner.certificate() if plan.ending is not FitEnding.REFINED else {}
        total = self._columns.shape[0] * self._columns.shape[1]
        self._certificate = own | {
            "outlier_share": flagged / max(seen, 1),
            "missing_share": 1.0 - seen / max(total, 1),
            "residual_rms": float(np.sqrt(squares / max(seen, 1))),
        }

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish` that was read to its end."""
        return dict(self._certificate)

    def _closing(self, broadcast: TensorMessage) -> bool:
        return bool(broadcast.tensor.shape[1] == self._width + len(FEATURE_COLUMNS))

    def _coefficients(self, plan: ClosingPlan, M: FloatArray, first: int, last: int) -> FloatArray:
        """V of a block: carried over where this site took part in the round before, else from the data alone."""
        model = plan.model
        if plan.fresh or not self._U.shape[1]:
            return fit_columns(model, M, None)
        return fit_columns(model, M, self._V[first:last] @ (self._U.T @ model.U))

    def _refine(self, plan: ClosingPlan) -> TensorMessage:
        self.hidden.hiding = plan.hiding
        total, V = None, np.zeros((self._columns.shape[1], plan.rank))
        for first, last in self._blocks:
            M = self.hidden.read(first, last)
            V[first:last] = self._coefficients(plan, M, first, last)
            loss = float(objective_by_column(plan.model, M, V[first:last]).sum())
            update = refinement_update(plan, M, V[first:last], loss).flat()
            total = update if total is None else total + update
        self._U, self._V = plan.subspace.U, V
        assert total is not None
        cut = total.size - (2 + self._width + self._width * (self._width + 1) // 2)
        return TensorMessage(total[:cut].reshape(self._columns.shape[0], -1), total[cut:])

    def _validate(self, plan: ClosingPlan) -> TensorMessage:
        """Error sums of the hidden entries. A fit that is not refined has two ranks to tell of: none, and its own."""
        ranks = ranks_tried(self._width)
        total = np.zeros(2 + 3 * len(ranks))
        if plan.ending is FitEnding.REFINED:
            for first, last in self._blocks:
                M = self._columns.read(first, last)
                hidden = self.hidden.hidden(first, last) & ~np.isnan(M)
                judged = judged_entries(M, hidden, plan.median, plan.spread)
                errors = errors_by_rank(
                    plan.model, plan.median, np.where(hidden & ~judged, np.nan, M), judged, plan.spread
                )
                total += validation_sums(errors, judged.sum(axis=0).astype(np.float64))
            return TensorMessage(np.zeros((0, 0)), total / plan.columns)
        for _, block in self._results(plan, hiding=True):
            M = self._columns.read(block.start, block.start + block.L.shape[1])
            hidden = self.hidden.hidden(block.start, block.start + block.L.shape[1]) & ~np.isnan(M)
            judged = judged_entries(M, hidden, plan.median, plan.spread)
            own = column_errors(M, block.L, judged, plan.spread)
            errors = np.stack([column_errors(M, plan.median[:, None], judged, plan.spread), *[own] * (len(ranks) - 1)])
            total += validation_sums(errors, judged.sum(axis=0).astype(np.float64))
        return TensorMessage(np.zeros((0, 0)), total / plan.columns)

    def _null(self, plan: ClosingPlan) -> TensorMessage:
        total = None
        for M, block in self._results(plan, hiding=False):
            distance = squared_distance(plan, block.V)
            update = null_update(plan, M, block.L, distance)
            flat = update.flat()
            total = flat if total is None else total + flat
        assert total is not None
        cut = update.tensor.size
        return TensorMessage(total[:cut].reshape(update.tensor.shape), total[cut:])

    def _results(self, plan: ClosingPlan, hiding: bool) -> Iterator[tuple[FloatArray, ResultBlock]]:
        """Data and result of every block, before flags; hidden entries shown or not."""
        self.hidden.hiding = hiding
        if plan.ending is not FitEnding.REFINED:
            for block in self.inner.finish(plan.fit):
                yield self.hidden.read(block.start, block.start + block.L.shape[1]), block
            return
        for first, last in self._blocks:
            M, model = self.hidden.read(first, last), plan.model
            V = fit_columns(model, M, None)
            if self._U.shape[1]:
                V = better_of(model, M, V, fit_columns(model, M, self._V[first:last] @ (self._U.T @ model.U)))
            wide = np.zeros((last - first, self._width))
            wide[:, : plan.rank] = V
            yield M, ResultBlock(first, model.low_rank(V), scipy.sparse.csc_array(M.shape), wide)


def _scored(plan: ClosingPlan, M: FloatArray, block: ResultBlock) -> ResultBlock:
    """The block with its scores, and with outliers by the null where the fit's own are not exact."""
    if not plan.has_null:
        return block
    scored = score_columns(plan, M, block.L, block.V)
    scores = ColumnScores(scored.p_value, scored.largest_z, scored.distance)
    if plan.ending is FitEnding.EXACT:
        return ResultBlock(block.start, block.L, block.S, block.V, scores)
    S = np.where(scored.flagged, M - block.L, 0.0)
    return ResultBlock(block.start, block.L, scipy.sparse.csc_array(S), block.V, scores)

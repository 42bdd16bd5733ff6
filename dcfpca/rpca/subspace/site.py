"""A participant's side of `subspace`. Its state is the last subspace it answered and its own coefficients in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcfpca.rpca.columns import blocks
from dcfpca.rpca.kernels.block_step import Desk, Entering, Fit, Push, StepPlan, StepSums, block_step, settle
from dcfpca.rpca.kernels.loop_selection import fused
from dcfpca.rpca.kernels.numpy_loops import exponent_histogram
from dcfpca.rpca.kernels.scratch_arrays import Work
from dcfpca.rpca.kernels.thin_pass import first_walk
from dcfpca.rpca.method import Columns, FloatArray, Parcel, ResultBlock
from dcfpca.rpca.robust_projection import project
from dcfpca.rpca.subspace.settings import (
    CARRIED,
    OPENING_BINS,
    OPENING_LOWEST,
    OPENING_STEP,
    PLAN,
    PROJECTED,
    SubspaceSettings,
)

SKETCHING_ROUNDS = 2  # while U is only a sketch, one pass tells as much as two
FINISHING_PASSES = 2  # the final U is exact to the tolerance; these make V as exact
STALE = 0.01  # a share of the final subspace that a site which took part in the last rounds has seen
SMALLEST_SCALE = 1e-11  # of the largest: below lies rounding, which must not be blown up


class SubspaceSite:
    """Holds U as last answered, V, and the L of then; a site that missed rounds goes on from where it was."""

    def __init__(self, columns: Columns, rows: int, width: int, seed: int, settings: SubspaceSettings) -> None:
        self._columns = columns
        self._settings = settings
        self._U: Work = np.zeros((rows, width))
        self._V = np.zeros((columns.shape[1], width))
        self._fitted = np.zeros((columns.shape[1], width))  # the coefficients of the last L in the last U
        self._answered = 0  # the last round this site took part in
        self._sample = sampled_rows(rows, seed, settings)
        self._blocks = blocks(columns, settings.block_bytes)
        self._certificate: dict[str, float] = {}

    def answer(self, round: int, broadcast: Parcel) -> Parcel:
        """Round 0: counts of entry sizes. Later: the local passes, then Z = Y V̂ and counts of residual sizes."""
        if round == 0:
            return self._opening()
        # In round 1 U is random: one pass from L = 0 leaves the rows that nobody observed at exactly zero for good.
        plan = self._plan(broadcast, passes=1 if round <= SKETCHING_ROUNDS else self._settings.passes)
        desk, room = self._desk(plan), np.zeros(broadcast.tensor.shape)
        fit, sums = Fit.room(self._V.shape[0], plan.width), StepSums.zeros(plan, room)
        begins = self._begins(round, broadcast)
        carried, push = self._carried(broadcast, plan) if begins == CARRIED else (None, None)
        for first, last in self._blocks:
            M, block = self._columns.read(first, last), fit.block(first, last)
            start = carried[first:last] if carried is not None else _first_fit(begins, M, plan, desk)
            block_step(M, start, block, plan, sums, desk, push, first)
        sums.close(plan, push)
        self._U, self._V, self._fitted = plan.U, fit.V, fit.L
        self._answered = round
        return self._update(sums, room, broadcast)

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """U as last answered, V, and the coefficients of the last L."""
        arrays = {"U": self._U.astype(np.float64), "V": self._V.copy(), "fitted": self._fitted.copy()}
        return {**arrays, "answered": np.array([self._answered])}

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Take up an earlier snapshot."""
        self._U = np.array(snapshot["U"], dtype=np.float64)
        self._V = np.array(snapshot["V"], dtype=np.float64)
        self._fitted = np.array(snapshot["fitted"], dtype=np.float64)
        self._answered = int(np.asarray(snapshot["answered"], dtype=np.int64)[0])

    def finish(self, broadcast: Parcel) -> Iterator[ResultBlock]:
        """L = U D Vᵀ with V settled under the final U, and S = firm(M − L). Leaves the state as it was."""
        plan = self._plan(broadcast, passes=FINISHING_PASSES, final=True)
        carried = self._carried_to_the_end(plan.entering.U)
        tally, enters = Tally(), np.split(broadcast.scalars[len(PLAN) :], 2)[0] > 0.0
        desk, U = self._desk(plan), leading(broadcast.tensor, np.flatnonzero(enters))
        for first, last in self._blocks:
            M, fit = self._columns.read(first, last), Fit.room(last - first, plan.width)
            start = carried[first:last] if carried is not None else _first_fit(PROJECTED, M, plan, desk)
            settle(M, start, fit, plan, desk)
            L, S, shrunk = tally.result(fit, plan, U, desk.laid)
            V = np.zeros((last - first, enters.size))
            V[:, enters] = shrunk
            yield ResultBlock(first, L, S, V)
        self._certificate = tally.figures()

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish` that was read to its end."""
        return dict(self._certificate)

    def _opening(self) -> Parcel:
        sizes = np.zeros(OPENING_BINS)
        for start, stop in self._blocks:
            entries = np.abs(self._columns.read(start, stop)[self._sample])
            sizes += exponent_histogram(entries, 1.0, OPENING_LOWEST, OPENING_BINS, OPENING_STEP)
        return Parcel(np.zeros((0, 0)), np.concatenate([[float(self._columns.shape[1])], sizes]))

    def _plan(self, broadcast: Parcel, passes: int, final: bool = False) -> StepPlan:
        """A round as the broadcast says; the final step is about what enters, in the precision that the rounds had."""
        threshold, noise, relaxation, step, _, single, narrow, _, _ = broadcast.scalars[: len(PLAN)]
        U, (weights, values) = broadcast.tensor, np.split(broadcast.scalars[len(PLAN) :], 2)
        scales = update_scales(values) * update_unit(values)
        if narrow or final:
            places = np.flatnonzero(weights)
            U, weights, scales = leading(U, places), weights[places], scales[places]
        work = U.astype(np.float32) if single else np.ascontiguousarray(U)
        return StepPlan(
            U=work,
            entering=Entering.of(work, weights),
            scales=scales,
            threshold=float(threshold),
            a=self._settings.a,
            relaxation=float(relaxation),
            step=float(relaxation if final else step),
            noise=float(noise),
            passes=passes,
            sample=self._sample,
        )

    def _begins(self, round: int, broadcast: Parcel) -> float:
        """Where V begins. Under the low threshold of a late round, the stale V of a site that was away would make
        outliers of everything: it begins at a projection."""
        begins = float(broadcast.scalars[PLAN.index("start")])
        was_away = round > 1 and self._answered not in (round - 1, round)
        return PROJECTED if begins == CARRIED and was_away else begins

    def _desk(self, plan: StepPlan) -> Desk:
        widest = max((stop - start for start, stop in self._blocks), default=0)
        return Desk.of(self._columns.shape[0] * widest, plan)

    def _carried_to_the_end(self, U: Work) -> Work | None:
        """V carried over for the result; None where this site has not seen the final subspace."""
        turn = self._turn(U)
        seen = float(np.sum(turn**2)) / U.shape[1] if U.shape[1] else 1.0
        return None if 1.0 - seen > STALE else self._V.astype(U.dtype, copy=False) @ turn

    def _carried(self, broadcast: Parcel, plan: StepPlan) -> tuple[Work, Push | None]:
        """V carried over from the last subspace this site answered, and the momentum that the aggregator asks for."""
        U, momentum = plan.entering.U, float(broadcast.scalars[PLAN.index("momentum")])
        if not self._answered:
            return np.zeros((self._V.shape[0], U.shape[1]), U.dtype), None
        turn = self._turn(U)
        start: Work = self._V.astype(U.dtype, copy=False) @ turn
        if not momentum:
            return start, None
        turn = turn if U is plan.U else self._turn(plan.U)
        return start, Push.of(momentum, self._fitted, self._U, turn)

    def _turn(self, U: Work) -> Work:
        """U_beforeᵀ U, as exactly as U_before and V were worked out."""
        turn: Work = self._U.T @ U.astype(self._U.dtype, copy=False)
        return turn.astype(U.dtype, copy=False)

    def _update(self, sums: StepSums, tensor: FloatArray, broadcast: Parcel) -> Parcel:
        """Everything is sent in units that make it of order one, so that a fixed-point sum keeps all its digits."""
        weights, _ = np.split(broadcast.scalars[len(PLAN) :], 2)
        everyone = broadcast.scalars[len(PLAN) - 1]
        counts = np.concatenate([[sums.pull, sums.kept, sums.sampled], sums.histogram]) / (everyone * self._sample.size)
        if sums.tensor.shape[1] < weights.size:  # a narrow round: the directions that do not enter rest
            spread(tensor, np.flatnonzero(weights))
        return Parcel(tensor, np.concatenate([[self._columns.shape[1] / everyone], counts]))


@dataclass(slots=True)
class Tally:
    """Sums over a site's blocks for its certificate."""

    entries: int = 0
    outliers: int = 0
    missing: int = 0
    pull: float = 0.0
    drift: float = 0.0
    size: float = 0.0

    def result(
        self, fit: Fit, plan: StepPlan, U: FloatArray, M: FloatArray
    ) -> tuple[FloatArray, sparse.csc_array, FloatArray]:
        """L, S and the coefficients of L of one block, taken into the sums."""
        shrunk = fit.V * plan.entering.weights
        L = U @ shrunk.T
        self.drift += float(np.sum((shrunk - fit.L) ** 2))
        self.size += float(np.sum(shrunk**2))
        return L, self.outliers_of(M, L, plan.threshold, plan.a), shrunk

    def outliers_of(self, M: FloatArray, L: FloatArray, threshold: float, a: float) -> sparse.csc_array:
        """S = firm(M − L) of one block, taken into the sums."""
        loops, counts = fused(), np.zeros(L.shape[1], np.int64)
        missing, squares = loops.outliers_by_column(M, L, threshold, counts)
        ends = np.concatenate([[0], np.cumsum(counts)])
        rows, values = np.empty(ends[-1], np.int32), np.empty(ends[-1])
        self.pull += squares + loops.gather_outliers(M, L, threshold, a, ends[:-1].copy(), rows, values)
        self.entries += L.size
        self.missing += missing
        self.outliers += int(ends[-1])
        return sparse.csc_array((values, rows, ends), shape=L.shape)

    def figures(self) -> dict[str, float]:
        """Shares of outliers and missing entries, RMS of what is left, and how far V still moved in the last pass."""
        observed = max(self.entries - self.missing, 1)
        return {
            "outlier_share": self.outliers / observed,
            "missing_share": self.missing / max(self.entries, 1),
            "residual_rms": float(np.sqrt(self.pull / observed)),
            "stationarity": float(np.sqrt(self.drift / self.size)) if self.size > 0.0 else 0.0,
        }


def _first_fit(begins: float, M: FloatArray, plan: StepPlan, desk: Desk) -> Work:
    """Coefficients of a block's columns in the entering directions, from the data alone."""
    U = plan.entering.U
    if begins == PROJECTED:
        return project(U.astype(np.float64), M).coefficients.astype(U.dtype)
    laid, Y = desk.lay(M)
    if plan.walks(M):
        return first_walk(laid, M.shape[1], plan, desk.L)
    Y.fill(0.0)
    fused().sweep(laid, Y, plan.threshold, plan.a, 0.0, plan.relaxation)
    start: Work = Y.T @ U
    return start


def leading(U: FloatArray, places: NDArray[np.intp]) -> FloatArray:
    """These columns, which mostly are the first ones: then a view."""
    return U[:, : places.size] if not places.size or places[-1] < places.size else U[:, places]


def spread(tensor: FloatArray, places: NDArray[np.intp]) -> None:
    """Put the first columns where they belong, and zeros into the others; mostly they are the first ones."""
    if places[-1] >= places.size:
        narrow = tensor[:, : places.size].copy()
        tensor[:] = 0.0
        tensor[:, places] = narrow


def update_unit(values: FloatArray) -> float:
    """The unit of the tensor a site sends: about the largest singular value."""
    largest = float(values.max())
    return largest if largest > 0.0 else 1.0


def update_scales(values: FloatArray) -> FloatArray:
    """What V is divided by so that its columns have length one together, over all sites."""
    return np.maximum(values, SMALLEST_SCALE * update_unit(values))


def sampled_rows(rows: int, seed: int, settings: SubspaceSettings) -> NDArray[np.intp]:
    """The rows on which every site counts residuals: the same for all, so that the split does not matter."""
    count = min(rows, max(settings.sampled_rows, round(settings.sampled_share * rows)))
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))

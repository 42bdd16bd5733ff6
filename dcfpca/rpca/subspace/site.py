"""A participant's side of `subspace`. Its state is the last subspace it answered and its own coefficients in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.column_blocks import blocks, grouped, readable_by_loops
from dcfpca.rpca.kernels.block_step import StepSums, block_step, first_coefficients, fitting_passes
from dcfpca.rpca.kernels.compiled_loops import THIN_WIDTH
from dcfpca.rpca.kernels.numpy_loops import HISTOGRAM_BINS, exponent_histogram
from dcfpca.rpca.kernels.step_parameters import (
    Coefficients,
    EnteringDirections,
    Momentum,
    ScratchBuffers,
    StepPlan,
    select_columns,
)
from dcfpca.rpca.method import Columns, FloatArray, ResultBlock, TensorMessage, WorkArray
from dcfpca.rpca.robust_projection import project
from dcfpca.rpca.subspace.round_plan import CoefficientStart, RoundPlan, unit_and_scales
from dcfpca.rpca.subspace.settings import OPENING_BINS, OPENING_LOWEST, OPENING_STEP, SubspaceSettings
from dcfpca.rpca.subspace.site_result import CertificateSums, UnexplainedSums, free_locked_columns

SKETCHING_ROUNDS = 2  # while U is only a sketch, one pass is as good as two
RESULT_BYTES = 1 << 23  # of L in one block of the result, so that no site has to join many small ones
STALE = 0.01  # a share of the final subspace that a site which took part in the last rounds has seen
_PROJECTED = CoefficientStart.PROJECTED


class SubspaceFit:
    """The fit at one site: keeps U, V and L of the last round it answered, and resumes from them."""

    def __init__(self, columns: Columns, rows: int, width: int, seed: int, settings: SubspaceSettings) -> None:
        self._columns = columns
        self._settings = settings
        self._U: WorkArray = np.zeros((rows, width))
        self._V = np.zeros((columns.shape[1], width))
        self._fitted = np.zeros((columns.shape[1], width))  # the coefficients of the last L in the last U
        self._answered = 0  # the last round this site took part in
        self._sample = sampled_rows(rows, seed, settings)
        self._blocks = blocks(columns, settings.block_bytes)
        widest = max((stop - start for start, stop in self._blocks), default=0)
        self._largest = columns.shape[0] * widest  # entries of a block
        self._certificate: dict[str, float] = {}

    def opening(self) -> TensorMessage:
        """The number of columns and counts of entry sizes."""
        sizes = np.zeros(OPENING_BINS)
        for start, stop in self._blocks:
            entries = np.abs(self._columns.read(start, stop)[self._sample])
            sizes += exponent_histogram(entries, 1.0, OPENING_LOWEST, OPENING_BINS, OPENING_STEP)
        return TensorMessage(np.zeros((0, 0)), np.concatenate([[float(self._columns.shape[1])], sizes]))

    def answer(self, round: int, plan: RoundPlan) -> TensorMessage:
        """The local passes of this round of the run, then Z = Y V̂ and counts of residual sizes."""
        if plan.number == 1:
            self._answered = 0  # also where a site has answered before: the run was set back to its beginning
        # In its first round U is random: one pass from L = 0 leaves rows that nobody observed at exactly zero for good.
        step = self._step_plan(plan, passes=1 if plan.number <= SKETCHING_ROUNDS else self._settings.passes)
        # Under the low threshold of a late round, the V of a site that missed the last round would make everything an
        # outlier: the site starts from a projection.
        was_away = plan.number > 1 and self._answered not in (round - 1, round)
        rule = _PROJECTED if plan.start is CoefficientStart.CARRIED and was_away else plan.start
        fit, sums = self._work(rule, plan.momentum, step)
        self._U, self._V, self._fitted = step.U, fit.V, fit.L
        self._answered = round
        return self._update(sums, plan)

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """U as last answered, V, and the coefficients of the last L. No copies: a round makes new arrays."""
        arrays = {"U": self._U.astype(np.float64, copy=False), "V": self._V, "fitted": self._fitted}
        return {**arrays, "answered": np.array([self._answered])}

    def restore(self, snapshot: Mapping[str, NDArray[np.generic]]) -> None:
        """Take up an earlier snapshot."""
        self._U = np.asarray(snapshot["U"], dtype=np.float64)
        self._V = np.array(snapshot["V"], dtype=np.float64)
        self._fitted = np.array(snapshot["fitted"], dtype=np.float64)
        self._answered = int(np.asarray(snapshot["answered"], dtype=np.int64)[0])

    def finish(self, broadcast: TensorMessage) -> Iterator[ResultBlock]:
        """L = U D Vᵀ with V converged under the final U, and S = firm(M − L); locked columns are projected again where
        that leaves fewer outliers. Leaves the state of the site as it was."""
        plan, figures = RoundPlan.of(broadcast), CertificateSums()
        unexplained = UnexplainedSums.of(plan)
        for M, block in self._results(plan, figures):
            freed, left = free_locked_columns(M, block, plan, self._settings.a)
            unexplained.add(block, freed, left)
            yield freed
        self._certificate = unexplained.amended(figures.figures(), self._columns, self._blocks)

    def certificate(self) -> dict[str, float]:
        """Figures of the last `finish` that was read to its end."""
        return dict(self._certificate)

    def _work(self, rule: CoefficientStart, momentum_factor: float, step: StepPlan) -> tuple[Coefficients, StepSums]:
        """The local passes over all blocks, from coefficients by this rule."""
        carried, momentum = self._carried(momentum_factor, step) if rule is CoefficientStart.CARRIED else (None, None)
        V: FloatArray = np.empty((self._V.shape[0], step.U.shape[1]))
        fit, sums = Coefficients(V, np.zeros(V.shape)), StepSums(np.zeros(step.U.shape), np.zeros(HISTOGRAM_BINS))
        scratch = ScratchBuffers.of(self._largest, step)
        for first, last in self._blocks:
            M, block = self._columns.read(first, last), Coefficients(V[first:last], fit.L[first:last])
            start = carried[first:last] if carried is not None else _first_fit(rule, M, step, scratch)
            block_step(M, start, block, step, sums, scratch, momentum, first)
        del scratch  # momentum's arrays take its place
        sums.close(momentum)
        return fit, sums

    def _results(self, plan: RoundPlan, figures: CertificateSums) -> Iterator[tuple[FloatArray, ResultBlock]]:
        """The data and the result of every block, V converged under the final U."""
        step = self._step_plan(plan, passes=1, final=True)
        carried = self._carried_to_the_end(step.entering.U)
        U = select_columns(plan.U, plan.entering) if plan.single else step.U
        for group in grouped(self._blocks, RESULT_BYTES // (8 * max(plan.U.shape[0], 1))):
            begin, end = group[0][0], group[-1][1]
            M, V = self._columns.read(begin, end), np.empty((end - begin, step.U.shape[1]))
            data, scratch = readable_by_loops(M), ScratchBuffers.of(self._largest, step)
            fit = Coefficients(V, np.zeros(V.shape))
            for first, last in group:
                part = data[:, first - begin : last - begin]
                start = carried[first:last] if carried is not None else _first_fit(_PROJECTED, part, step, scratch)
                own = Coefficients(fit.V[first - begin : last - begin], fit.L[first - begin : last - begin])
                fitting_passes(part, start, own, step, scratch)
            del scratch  # L takes its place
            L, S, shrunk = figures.result(fit, step, U, data)
            wide = np.zeros((end - begin, plan.weights.size))
            wide[:, plan.entering] = shrunk
            yield M, ResultBlock(begin, L, S, wide)

    def _step_plan(self, plan: RoundPlan, passes: int, final: bool = False) -> StepPlan:
        """The round for this site; the final step covers only what enters L, in the precision of the last round."""
        unit, divisors = unit_and_scales(plan.values)
        U, weights, scales = plan.U, plan.weights, unit * divisors
        if plan.narrow or final:
            entering = plan.entering
            U, weights, scales = select_columns(U, entering), weights[entering], scales[entering]
        work = U.astype(np.float32) if plan.single else U if U.shape[1] > THIN_WIDTH else np.ascontiguousarray(U)
        return StepPlan(
            U=work,
            entering=EnteringDirections.of(work, weights),
            scales=scales,
            threshold=plan.threshold,
            a=self._settings.a,
            relaxation=plan.relaxation,
            step=plan.relaxation if final else plan.step,
            noise=plan.noise,
            passes=passes,
            sample=self._sample,
        )

    def _carried_to_the_end(self, U: WorkArray) -> WorkArray | None:
        """V carried over for the result; None where this site has not seen the final subspace."""
        turn = self._turn(U)
        seen = float(np.sum(turn**2)) / U.shape[1] if U.shape[1] else 1.0
        return None if 1.0 - seen > STALE else self._V.astype(U.dtype, copy=False) @ turn

    def _carried(self, momentum: float, step: StepPlan) -> tuple[WorkArray, Momentum | None]:
        """V carried over from the last subspace this site answered, and the momentum that the aggregator asks for."""
        U = step.entering.U
        if not self._answered:
            return np.zeros((self._V.shape[0], U.shape[1]), U.dtype), None
        turn = self._turn(U)
        start: WorkArray = self._V.astype(U.dtype, copy=False) @ turn
        if not momentum:
            return start, None
        turn = turn if U is step.U else self._turn(step.U)
        before = self._fitted.astype(turn.dtype, copy=False)
        return start, Momentum(momentum, before, self._U, turn, np.zeros(turn.shape, turn.dtype))

    def _turn(self, U: WorkArray) -> WorkArray:
        """U_beforeᵀ U, as exactly as U_before and V were worked out."""
        turn: WorkArray = self._U.T @ U.astype(self._U.dtype, copy=False)
        return turn.astype(U.dtype, copy=False)

    def _update(self, sums: StepSums, plan: RoundPlan) -> TensorMessage:
        """Everything is sent in units that make it of order one, so that a fixed-point sum keeps all its digits."""
        sampled = plan.columns * self._sample.size  # over all sites
        own = [self._columns.shape[1] * self._sample.size, sums.influence, sums.kept, sums.sampled]
        tensor = sums.tensor
        if tensor.shape != plan.U.shape:  # a narrow round: the directions that do not enter rest
            tensor = np.zeros(plan.U.shape)
            tensor[:, plan.entering] = sums.tensor
        return TensorMessage(tensor, np.concatenate([own, sums.histogram]) / sampled)


def _first_fit(rule: CoefficientStart, M: FloatArray, plan: StepPlan, scratch: ScratchBuffers) -> WorkArray:
    """Coefficients of a block's columns in the entering directions, from the data alone."""
    if rule is not _PROJECTED:
        return first_coefficients(M, plan, scratch)
    U = plan.entering.U
    return project(U.astype(np.float64), M).coefficients.astype(U.dtype)


def sampled_rows(rows: int, seed: int, settings: SubspaceSettings) -> NDArray[np.intp]:
    """The rows on which every site counts residuals: the same for all, so that the split does not matter."""
    return _sorted_choice(rows, seed, min(rows, settings.sampled_rows)).copy()


@lru_cache(maxsize=4)
def _sorted_choice(rows: int, seed: int, count: int) -> NDArray[np.intp]:
    return np.sort(np.random.default_rng(seed).choice(rows, count, replace=False))

"""The closing stages after a fit (docs/solver.md), and the fit as it is watched until they begin.

The method fits while a few entries are hidden. Where the data turns out not to be low-rank plus sparse exactly,
refinement rounds find the noise of every feature and the subspace under it; a validation round measures how well each
rank predicts the hidden entries and so decides the rank; further refinement rounds use all entries; and a null round
gives everybody the pooled distribution of residuals by which entries are flagged and scored. Everything is a sum over
columns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dcfpca.rpca.calibration.check import Check
from dcfpca.rpca.calibration.sample_test import SampleNull
from dcfpca.rpca.calibration.stages import Covariance, Shape
from dcfpca.rpca.method import Consensus, FloatArray, Outcome, TensorMessage, Total
from dcfpca.rpca.refinement.closing_plan import REFINE, VALIDATE, VERDICT, ClosingPlan, FitEnding
from dcfpca.rpca.refinement.closing_stage import COUNTERS
from dcfpca.rpca.refinement.null import Null
from dcfpca.rpca.refinement.outlyingness import Outlyingness
from dcfpca.rpca.refinement.refine import Refinement
from dcfpca.rpca.refinement.validate import Validation
from dcfpca.rpca.round_limits import WHOLE
from dcfpca.rpca.stage import Stage, StageAround, View
from dcfpca.rpca.stage_list import Hiding, Method

# Of the opening scale: a fit that ends with less noise explains the data. The scale is a level, not a spread: values of
# deviation 1 about 1e6 have noise of 1e-6 of it, and rank 1 must not pass for all there is to them.
EXACT_NOISE = 1e-8
# Of the opening scale: with less noise, a run that stands still may be about to find the exact answer, unless the
# threshold has come down to the noise, which does not move.
STALLED_NOISE, STANDS, COME_DOWN = 1e-4, 0.9, 5.0
EXACT_SPREAD = 1e-9  # of a feature's spread: what a tolerance leaves of an exact L, which is no outlier
WINDOW = 6  # rounds over which the noise is watched
FAR_ABOVE = 20.0  # noises: while the threshold is higher it still parts outliers from L, and directions wait for it
LEAST_SPREAD = 1e-3  # of the largest: of a feature that is not in L
HISTORY = "closing/noise"  # the key of the noise after every round in a consensus' memory
HIDDEN_SHARE = 0.03
FLAG_RATE = 0.01
MIN_CARRIERS = 2


class Patience(NamedTuple):
    """The round from which the noise is watched, and the share of itself to which it falls over the window on exact
    data."""

    rounds: int
    fall: float


FEW_ROWS_OR_COLUMNS = Patience(8, 0.5)  # thresholds fall slowly here, but nothing waits for them
MANY = Patience(12, 0.5)  # where outliers are many, a direction may wait this long to enter, and the noise with it
MANY_DIRECTIONS = Patience(18, 0.75)  # where also the rank is a large share of the smaller side, it takes its time
MANY_SIDE, MANY_SHARE = 100, 0.055
# Outliers as small as L: λ and the noise fall slowly side by side, the noise at first to 0.6 to 0.94 of itself over the
# window, later faster, under a threshold of 11 to 30 noises. Noise that is there to stay has 0.85 and more by then, and
# a threshold that came down to it, 2 to 8 noises.
SIDE_BY_SIDE = 10.0  # noises, in the place of FAR_ABOVE
SLOW_ROUNDS, SLOW_FALL, LATE_FALL = 18, 0.88, 0.75


def with_closing_rounds(
    method: Method,
    *,
    fixed_rank: bool = True,
    refines: bool = True,
    hidden_share: float = HIDDEN_SHARE,
    seed: int = 0,
    rate: float = FLAG_RATE,
    min_cell: int = 1,
    covariance: bool = True,
    min_carriers: int = MIN_CARRIERS,
) -> Method:
    """The method with closing stages. `refines` says whether its fit may be refined, `fixed_rank` whether its width is
    the rank, `covariance` whether sites may be asked for that of all features; `rate` decides how sure flags are,
    `min_cell` what counts that leave a site are at least.
    Directions that fewer sites than `min_carriers` carry are left out of the published model."""
    fit, width = method.stages[-1], method.solver.width
    bound = None if fixed_rank else width
    watched = tuple(WatchedFit(stage, width, refines) for stage in method.stages)
    whole = covariance and fit.down.rows <= WHOLE
    closing: list[Stage] = [
        Refinement(fit, width, bound, min_cell, whole=whole),
        Validation(fit, width, bound, whole=whole),
    ]
    if whole:
        closing.append(Shape(fit, width, bound, min_cell))
        closing.append(Covariance(fit, width, bound))
        closing.append(Check(fit, width, bound, rate, min_carriers))
    closing.append(Null(fit, width, bound, rate, min_cell))
    return replace(method, stages=(*watched, *closing), hiding=Hiding(hidden_share, seed))


class WatchedFit(StageAround):
    """A stage of a fit on columns with hidden entries. When the fit ends, or its noise no longer falls, the closing
    stages begin with its result."""

    def __init__(self, inner: Stage, width: int, refines: bool) -> None:
        super().__init__(inner, then=(REFINE, VALIDATE) if refines else (VALIDATE,))
        self._width, self._refines = width, refines

    def prepare(self, view: View, announced: Consensus) -> Consensus:
        """Hide entries from the fit."""
        assert view.hidden is not None
        view.hidden.hiding = True
        return super().prepare(view, announced)

    def advance(self, consensus: Consensus, total: Total) -> Consensus:
        """The next round of the fit, or the first closing round."""
        after = self.inner.advance(consensus, total)
        history = np.append(consensus.memory.get(HISTORY, np.zeros(0)), after.progress.noise)
        # The first sum is that of the opening, whose first scalar is the number of columns.
        columns = consensus.memory[COUNTERS][0] if COUNTERS in consensus.memory else total.sums.scalars[0]
        notes = {HISTORY: history, COUNTERS: np.array([columns, 0.0, 0.0, 0.0])}
        after = replace(after, memory={**after.memory, **notes})
        if after.outcome is Outcome.DIVERGED:
            return after
        smaller = min(float(self.inner.down.rows), float(columns))
        over = self._refines and stalled(history, self._width, smaller, after.progress.threshold)
        return self._hand_over(after, history) if over or after.outcome is not None else after

    def _hand_over(self, fitted: Consensus, history: FloatArray) -> Consensus:
        """Begin the closing rounds with the result of the fit."""
        columns, limited = float(fitted.memory[COUNTERS][0]), fitted.outcome is Outcome.OUT_OF_ROUNDS
        exact = fitted.outcome is Outcome.CONVERGED and is_exact(history)
        ending = FitEnding.KEPT if not self._refines else FitEnding.EXACT if exact else FitEnding.REFINED
        plan = opening_plan(fitted, history, columns, ending)
        counters = np.array([columns, 0.0, 0.0, float(limited)])
        return Consensus(
            fitted.round + 1 if fitted.outcome is not None else fitted.round,
            REFINE if ending is FitEnding.REFINED else VALIDATE,
            plan.broadcast(),
            {**fitted.memory, COUNTERS: counters},
            fitted.progress,
        )


def stalled(noise: FloatArray, width: int, smaller_side: float, threshold: float) -> bool:
    """Whether the noise, which starts as the opening scale, has stopped falling above zero, under a threshold that has
    come down to it."""
    rounds, fall = patience(width, smaller_side)
    if noise.size <= rounds or is_exact(noise):
        return False
    if noise[-1] <= STALLED_NOISE * noise[0]:
        return bool(noise[-1] > STANDS * noise[-1 - WINDOW] and threshold <= COME_DOWN * noise[-1])
    near = FAR_ABOVE
    if smaller_side >= MANY_SIDE:
        near, fall = SIDE_BY_SIDE, SLOW_FALL if noise.size <= SLOW_ROUNDS else LATE_FALL
    return bool(noise[-1] > fall * noise[-1 - WINDOW] and threshold <= near * noise[-1])


def patience(width: int, smaller_side: float) -> Patience:
    """How many rounds a fit of this width has to become exact."""
    if smaller_side < MANY_SIDE:
        return FEW_ROWS_OR_COLUMNS
    return MANY_DIRECTIONS if width >= MANY_SHARE * smaller_side else MANY


def is_exact(noise: FloatArray) -> bool:
    """Whether the fit left nothing but rounding unexplained."""
    return bool(noise.size and np.isfinite(noise[-1]) and noise[-1] <= EXACT_NOISE * noise[0])


def opening_plan(fitted: Consensus, history: FloatArray, columns: float, ending: FitEnding) -> ClosingPlan:
    """The first plan of the closing rounds, from the last consensus of the fit."""
    U, values = fitted.broadcast.tensor, fitted.progress.singular_values
    rows, width = U.shape
    variance = np.zeros(width)
    variance[: min(values.size, width)] = values[:width] ** 2 / max(columns, 1.0)
    tiny = np.finfo(np.float64).tiny
    unit = float(history[0]) if np.isfinite(history[0]) else 1.0
    refined = ending is FitEnding.REFINED
    if refined:
        U = np.linalg.qr(U)[0]
        variance = np.maximum(variance, float(history[-1]) ** 2)
        # So coarse that what is hidden does not move it: bins of values then stand where they would without it.
        spread = np.full(rows, 16.0 ** np.floor(np.log2(unit) / 4.0) if unit > 0.0 else 1.0)
        noise = np.full(rows, float(history[-1]))
    else:
        basis = np.linalg.svd(U, full_matrices=False)
        spread = np.sqrt((basis[0] ** 2) @ variance)
        spread = np.maximum(spread, max(LEAST_SPREAD * float(spread.max(initial=0.0)), tiny))
        noise = np.maximum(
            np.full(rows, float(history[-1])) if ending is FitEnding.EXACT else spread / 32.0, EXACT_SPREAD * spread
        )
    return ClosingPlan(
        ending=ending,
        hiding=True,
        fresh=True,
        rank=width if refined else int(values.size),
        columns=columns,
        U=U,
        variance=variance,
        centre=np.zeros(rows),
        noise=np.maximum(noise, tiny),
        median=np.zeros(rows),
        spread=spread,
        reach=8.0 * spread,
        one_value=np.zeros(rows),
        two_values=np.zeros(rows),
        null_scale=np.ones(rows),
        cut=0.0,
        distance_scale=1.0,
        taken=columns,
        outlying=Outlyingness.unknown(),
        sample_null=SampleNull(),
        verdict=np.zeros(len(VERDICT)),
        fit=TensorMessage(U, fitted.broadcast.scalars),
    )

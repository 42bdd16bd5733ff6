"""Scores of entries and columns against the null of a run: those of the run itself, and new ones. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.calibration.calibration import CONSTANT, Calibration
from dcfpca.rpca.calibration.expectation import (
    TRUSTED,
    Expectation,
    Expected,
    ScoreModel,
    expect,
    leading_directions,
    shape_variance,
    shrinkage,
    tail_variance,
)
from dcfpca.rpca.calibration.leave_one_out import Origin
from dcfpca.rpca.calibration.sample_inverses import chunks
from dcfpca.rpca.calibration.sample_test import normal_distance, oddness
from dcfpca.rpca.method import Findings, FloatArray
from dcfpca.rpca.own_view.slips import Slips, slipped
from dcfpca.rpca.refinement.alternating_fit import fit_freely
from dcfpca.rpca.refinement.closing_plan import ClosingPlan, FitEnding
from dcfpca.rpca.refinement.noise_scale import column_p_value, distance_p_value, fresh_distance_p_value
from dcfpca.rpca.robust_projection import project

SMALLEST_P = 1e-290
CLEARLY = 1.25
"""How far beyond the cut of its own view an entry must lie before a site flags it although all sites find it usual: its
own view rests on fewer samples."""
SEVERAL = 3  # entries of a sample
MOSTLY_ODD = 0.01  # a median p-value of a site's samples: they are not of the population that all sites share


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """Entries (m × n) and columns (n) held against the null."""

    others: Expected
    z: FloatArray  # deviation from what is expected, in units of the feature and side; NaN where unobserved
    calibration: Calibration  # that they are held against
    flagged: NDArray[np.bool_]
    distance: FloatArray  # T²
    largest_z: FloatArray
    p_value: FloatArray  # of the column

    @property
    def entry_p_value(self) -> FloatArray:
        """The probability of an ordinary entry at least this far off."""
        return self.calibration.null.tail(self.z)

    @property
    def exceeded_by(self) -> FloatArray:
        """At most so many of the feature's counted entries are further off; NaN: more than is told."""
        rows = np.broadcast_to(np.arange(len(self.z))[:, None], self.z.shape)
        return self.calibration.rank_of(np.where(np.isnan(self.z), 0.0, np.abs(self.z)), rows)


@dataclass(frozen=True, slots=True, eq=False)
class TransformedColumns:
    """New columns under a finished run: their coefficients, their normal part, and their scores."""

    V: FloatArray
    L: FloatArray
    scored: Scored


def squared_distance(plan: ClosingPlan, V: FloatArray) -> FloatArray:
    """T² of columns with these coefficients: their squares in units of the pooled second moments.

    A fit that keeps its own factors (`gradient`) has no such moments, and every column the distance 0.
    """
    if plan.ending is FitEnding.KEPT:
        return np.zeros(V.shape[0])
    variance = np.maximum(plan.variance[: plan.rank], np.finfo(np.float64).tiny)
    return np.asarray(np.sum(V[:, : plan.rank] ** 2 / variance, axis=1))


def expect_entries(
    plan: ClosingPlan, M: FloatArray, L: FloatArray, *, fresh: bool = False, refined: NDArray[np.bool_] | None = None
) -> Expected:
    """What the others predict of every entry: by the whole covariance of scores where the run has it, by the directions
    of a refined L where features are many, and by L itself where a fit was not refined. `fresh` columns had no part in
    the model, `refined` ones (None: all) a part in the directions."""
    calibration = plan.calibration
    if plan.ending is not FitEnding.REFINED or calibration is None:
        z, noise = (M - L) / plan.noise[:, None], np.broadcast_to(plan.noise[:, None], M.shape)
        none: NDArray[np.bool_] = np.zeros(M.shape, dtype=bool)
        return Expected(L, z, normal_distance(np.zeros(M.shape[1]), z, none), L, noise, none)
    if not calibration.whole:
        kept = plan.subspace
        model = ScoreModel(kept.centre, kept.U * np.sqrt(kept.variance), plan.noise**2, np.zeros(len(M), dtype=bool))
        near: NDArray[np.bool_] = np.abs(M - L) <= TRUSTED * plan.noise[:, None]
        parts = [(M[:, cut], expect(model, M[:, cut], near[:, cut])) for cut in _chunks(model, M)]
        expected, deviation = (
            np.concatenate([getattr(found, name) for _, found in parts], axis=1) for name in ("score", "deviation")
        )
        taken = plan.calm(M) if refined is None else plan.calm(M) & refined
        odd = _oddness(plan, model, parts, 1.0, None if fresh else taken)
        return Expected(expected, (M - expected) / deviation, odd, expected, deviation, near)
    shape, model = calibration.shape, calibration.model
    scores = shape.forward(M)
    parts = [(scores[:, cut], expect(model, scores[:, cut])) for cut in _chunks(model, M)]
    expected, deviation, trusted = (
        np.concatenate([getattr(found, name) for _, found in parts], axis=1)
        for name in ("score", "deviation", "trusted")
    )
    deviation = np.sqrt(deviation**2 + tail_variance(model, scores, trusted, plan.columns))
    deviation = np.sqrt(deviation**2 + shape_variance(shape, scores, expected, deviation, plan.columns))
    odd = _oddness(plan, model, parts, shrinkage(len(M), plan.taken), None if fresh else plan.calm(M))
    z = (scores - expected) / deviation
    return Expected(shape.backward(expected), z, odd, expected, deviation, trusted)


def _oddness(
    plan: ClosingPlan,
    model: ScoreModel,
    parts: Sequence[tuple[FloatArray, Expectation]],
    diagonal: float,
    calm: NDArray[np.bool_] | None,
) -> FloatArray:
    """How odd the samples of these parts are. The `calm` and coherent ones are in the model; its covariance has the
    share `diagonal` in its diagonal."""
    odd, first = [], 0
    leading = model.factor.shape[1] if diagonal >= 1.0 else leading_directions(model, plan.taken)
    for own, found in parts:
        last = first + own.shape[1]
        then = expect(plan.made_by, own) if plan.made_by is not None and calm is not None else found
        taken = then.coherent & calm[first:last] if calm is not None else np.zeros(last - first, dtype=bool)
        held = np.where(then.trusted, own, then.score)
        odd.append(oddness(model, own, found, Origin(plan.taken, taken, held, leading, diagonal)))
        first = last
    return np.concatenate(odd)


def _chunks(model: ScoreModel, M: FloatArray) -> tuple[slice, ...]:
    rows, width = model.factor.shape
    return tuple(chunks(rows, width, M.shape[1])) or (slice(0, 0),)


def score_columns(
    plan: ClosingPlan,
    M: FloatArray,
    L: FloatArray,
    V: FloatArray,
    refined: NDArray[np.bool_] | None = None,
    *,
    fresh: bool = False,
) -> Scored:
    """Hold columns, with the normal part L and coefficients V, against the null of the plan; `fresh` ones had no part
    in the run, `refined` ones (None: all) in the refinement."""
    assert plan.calibration is not None  # a plan with a null has one
    found = expect_entries(plan, M, L, fresh=fresh, refined=refined)
    z = found.z / np.where(found.z > 0.0, plan.calibration.above[:, None], plan.calibration.below[:, None])
    # Where as good as no entry has another value, nobody can say how far off another would be.
    z = np.where((plan.one_value >= CONSTANT)[:, None] & ~np.isnan(z), 0.0, z)
    distance = squared_distance(plan, V)
    of_column = _sample_p_value(plan, found, z, distance, fresh and plan.ending is FitEnding.REFINED)
    sizes = np.where(np.isnan(z), 0.0, np.abs(z))
    largest = sizes.max(axis=0, initial=0.0)
    return Scored(found, z, plan.calibration, sizes > plan.calibration.null.cut, distance, largest, of_column)


def score_twice(
    plan: ClosingPlan,
    own: ClosingPlan | None,
    M: FloatArray,
    L: FloatArray,
    V: FloatArray,
    slips: Slips | None = None,
    refined: NDArray[np.bool_] | None = None,
) -> tuple[Scored, Scored]:
    """Columns by the site's own view and by what all sites share. An entry is flagged if both views flag it, if the own
    view clearly does, or if a slip that the site makes explains it: so nobody can make a pattern look usual, and the
    own view, which rests on few samples, flags little by itself."""
    shared = score_columns(plan, M, L, V, refined)
    if own is None:
        return shared, shared
    assert own.calibration is not None  # a view is of a plan with a null
    scored = score_columns(own, M, L, V, refined)
    # Odd samples move the own view, which then finds them usual: it tells only where most are odd for the others.
    p_value = scored.p_value if np.median(shared.p_value) < MOSTLY_ODD else shared.p_value
    sizes, cut = np.abs(np.nan_to_num(scored.z)), own.calibration.null.cut
    clear = sizes > CLEARLY * cut
    flagged = scored.flagged & (shared.flagged | clear)
    # If the shared view finds a sample usual that clearly contradicts itself in several entries here, it cannot judge
    # the sample, and more of the sample is wrong than elsewhere.
    beyond_them = np.count_nonzero(clear & ~shared.flagged, axis=0) >= SEVERAL
    flagged = np.where(beyond_them, sizes > cut / CLEARLY, flagged)
    if slips is not None:
        flagged = flagged | slipped(slips, own.calibration, own.columns, M, scored.others)
    return replace(scored, flagged=flagged, p_value=p_value), shared


def _sample_p_value(plan: ClosingPlan, found: Expected, z: FloatArray, distance: FloatArray, fresh: bool) -> FloatArray:
    """Of samples as a whole and within the subspace together."""
    assert plan.calibration is not None
    # Where the fit is exact, what is left is rounding and has no distances: there the entries tell.
    exact = plan.ending is FitEnding.EXACT
    whole = column_p_value(plan.calibration.null.tail(z)) if exact else plan.sample_null.p_value(found.odd)
    if plan.rank == 0:
        return whole
    distance = distance / plan.distance_scale
    within = fresh_distance_p_value(distance, plan.rank, plan.taken) if fresh else distance_p_value(distance, plan.rank)
    return np.minimum(2.0 * np.minimum(whole, within), 1.0)


def findings_of(
    scored: Scored, M: FloatArray, L: FloatArray, consortium_z: FloatArray
) -> tuple[scipy.sparse.csc_array, Findings]:
    """S of columns with the normal part L, which holds every flagged entry, and the findings about these. If flags
    follow a site's own view, `consortium_z` (m × n) has the deviations from what all sites share."""
    columns, rows = np.nonzero(scored.flagged.T)
    S = scipy.sparse.csc_array((M[rows, columns] - L[rows, columns], (rows, columns)), shape=M.shape)
    places, known = (rows, columns), scored.calibration
    return S, Findings(
        scored.others.value[places],
        scored.z[places],
        known.rank_of(np.abs(scored.z[places]), rows),
        known.entries[rows],
        consortium_z[places],
    )


def transform_columns(plan: ClosingPlan, M: FloatArray) -> TransformedColumns:
    """Fit new columns (NaN: unobserved) robustly in the subspace, and score them against the run's null."""
    model = plan.model
    if plan.ending is FitEnding.REFINED:
        V = fit_freely(model, M)
        L = model.low_rank(V)
    else:
        Q = np.linalg.qr(model.U)[0]
        L = Q @ project(Q, M).coefficients.T
        V = L.T @ model.U
    return TransformedColumns(V, L, score_columns(plan, M, L, V, fresh=True))


def normality(scored: Scored, plan: ClosingPlan) -> FloatArray:
    """How normal columns are, by the worse of two logarithms: that of the p-value as a whole, and that of Simes'
    combination of the entries' tails. It serves only to order columns, also where either p-value underflows to zero."""
    p = np.minimum(scored.p_value, column_p_value(scored.entry_p_value))
    tail = -0.5 * np.maximum(scored.largest_z**2, scored.distance / plan.distance_scale)
    return np.where(p > SMALLEST_P, np.log(np.maximum(p, SMALLEST_P)), tail)

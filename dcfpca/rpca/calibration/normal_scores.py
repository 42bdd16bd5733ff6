"""Maps each feature to normal scores by its pooled quantiles, so that features of any shape are judged alike.

Between the 5 and the 95 % quantile the map runs straight from knot to knot. Beyond, it continues at the slope of the
last knots, or logarithmically where slopes grow outwards: a long tail is compressed as far as the centre of the feature
shows it to be long, and a gross error still lies far out. A feature whose quantiles depart from a straight line no more
than those of a normal sample is only centred and scaled: chance bends would break exact linear relations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.noise_scale import Bins, normal_quantile, quantile
from dcfpca.rpca.small_cells import Merging

LEVELS = np.linspace(0.05, 0.95, 24)
SCORES: FloatArray = np.array([NormalDist().inv_cdf(level) for level in LEVELS])
MIDDLE, OUTER = 12, int(np.searchsorted(LEVELS, 0.84))  # knots: slopes of the tail are those from the second on
CHANCE = 5.0  # n times the mean square departure of quantiles from a line, in deviations: normal ones with a few errors
MOST_GROWTH = 1.5  # of the logarithm of the slope, per normal deviation: a logarithm's is 1 at most tables' skew
RARE = 0.95  # of the values of a plain feature that are not its median
FLAT = 1e-3  # spreads: features that are steeper nowhere have no shape
LEAST_SLOPE = 0.25  # of the slope over all knots
LEAST_SLOPE_OF_STEPS = 0.5  # of features of few values, whose outermost knots are one value
FEW, NEARLY_ALL, RARE_STEP, FILLING = 10, 0.9, 0.01, 40
GOING_ON = 0.25  # of the entries at an outermost value: as many within the width of the range beyond it
WIDE = 1.4  # of features of few values the outermost knots lie so much further out, at 1 and 99 %
GRADED = 0.5 * (1.0 + WIDE)  # a reach is 1 or WIDE, but for rounding
NEIGHBOURS, GAP = 4, 3.5  # knots; how many times further apart they are between groups of values than within
SHAPE_BINS = Bins(octaves=7, per_octave=8)
UPPER = np.concatenate([SHAPE_BINS.edges, [2.0**SHAPE_BINS.octaves]])
EDGES: FloatArray = np.concatenate([-UPPER[::-1], [0.0], UPPER])  # in spreads, from the median


def straight_knots(centre: FloatArray, deviation: FloatArray) -> FloatArray:
    """Knots (m × levels) of features that are only centred and scaled."""
    return centre[:, None] + deviation[:, None] * SCORES


def shape_from_counts(
    above: FloatArray,
    below: FloatArray,
    median: FloatArray,
    spread: FloatArray,
    plain: NDArray[np.bool_],
    merging: Merging,
) -> NormalScores:
    """Each feature's map from counts (SHAPE_BINS, in units of `spread`) of its distances above and below `median`.

    `plain` features, of one value or two, have no shape that quantiles could show, and are centred and scaled.
    """
    one, counts = np.ones(len(above)), np.column_stack([below[:, ::-1], above])
    stepped = _stepped(counts, merging.least) & ~plain
    reach = np.where(stepped, WIDE, 1.0)
    levels, rows = merging.levels(LEVELS), zip(counts, stepped, strict=True)
    quantiles = [_step_quantiles(row) if steps else _quantiles(row, levels) for row, steps in rows]
    found = np.array(quantiles).reshape(-1, LEVELS.size)  # in spreads, from the median
    total = np.maximum(counts.sum(axis=1), 1.0)
    slope = (found - found.mean(axis=1, keepdims=True)) @ SCORES / np.sum(SCORES**2)
    line = straight_knots(found.mean(axis=1), slope)
    departure = np.mean((found - line) ** 2, axis=1) / np.maximum(slope, FLAT) ** 2
    bend = np.maximum(1.0 - CHANCE / (total * np.maximum(departure, FLAT)), 0.0)[:, None]
    bend = np.where(stepped[:, None], 1.0, bend)
    knots = np.maximum.accumulate(bend * found + (1.0 - bend) * line, axis=1)
    rare = quantile(np.where(np.arange(SHAPE_BINS.count) > 0, above + below, 0.0), one, RARE, SHAPE_BINS)
    scale = np.where(plain, np.maximum(rare / normal_quantile(RARE), 1.0), 1.0)
    straight = plain | (slope <= FLAT) | (total < LEVELS.size)
    low, high = usual_range(above, below, plain, merging.hidden).T
    grid = ~np.isnan(low)
    scale = np.where(grid, 0.5 * (high - low) / SCORES[-1], scale)
    knots = np.where(straight[:, None], straight_knots(np.where(grid, 0.5 * (low + high), 0.0), scale), knots)
    return NormalScores(median[:, None] + spread[:, None] * knots, np.where(straight, 1.0, reach))


def usual_range(above: FloatArray, below: FloatArray, plain: NDArray[np.bool_], hidden: int) -> FloatArray:
    """The least and the largest usual value (m × 2, in spreads from the median) of `plain` features that hardly ever
    have another; NaN of others.

    A value is usual if the share RARE_STEP of the entries has it. Where entries continue next to the outermost usual
    value, as in a count or an amount that is mostly zero, the range has no end that can be found. Merging may hide
    `hidden` entries there.
    """
    line, middle = np.column_stack([below[:, ::-1], above]), 0.5 * (EDGES[:-1] + EDGES[1:])
    found = np.full((len(line), 2), np.nan)
    for row in np.flatnonzero(plain & (line.sum(axis=1) > 0.0)):
        counts = line[row]
        usual = np.flatnonzero(counts >= RARE_STEP * counts.sum())
        if usual.size < 2 or counts[usual].sum() < NEARLY_ALL * counts.sum():
            continue
        first, last = usual[0], usual[-1]
        width = middle[last] - middle[first]
        under = counts[:first][middle[:first] >= middle[first] - width].sum()
        over = counts[last + 1 :][middle[last + 1 :] <= middle[last] + width].sum()
        if under + hidden <= GOING_ON * counts[first] and over + hidden <= GOING_ON * counts[last]:
            found[row] = middle[first], middle[last]
    return found


def _stepped(counts: FloatArray, least: int) -> NDArray[np.bool_]:
    """Features in which a few values make up nearly all entries: grades, small counts.

    Bins are narrow enough that the grades from 1 to 10 have one each. A continuous feature of FILLING entries, or of as
    many merged groups of `least`, fills more.
    """
    fullest, total = np.sort(counts, axis=1)[:, ::-1], counts.sum(axis=1)
    return np.asarray((fullest[:, :FEW].sum(axis=1) >= NEARLY_ALL * total) & (total >= FILLING * least))


def _quantiles(counts: FloatArray, levels: FloatArray) -> FloatArray:
    """Quantiles at levels, values evenly spread within bins."""
    cumulative = np.concatenate([[0.0], np.cumsum(counts)])
    return np.interp(levels, cumulative / max(cumulative[-1], 1.0), EDGES)


def _step_quantiles(counts: FloatArray) -> FloatArray:
    """Quantiles at WIDE scores of a feature of few values: each value at the middle of its ranks. Values rarer than
    RARE_STEP may be errors and are left out."""
    known = np.where(counts >= RARE_STEP * counts.sum(), counts, 0.0)
    place = np.flatnonzero(known)
    middle = (np.cumsum(known) - 0.5 * known)[place] / known.sum()
    return np.interp(scipy.special.ndtr(WIDE * SCORES), middle, 0.5 * (EDGES[:-1] + EDGES[1:])[place])


@dataclass(frozen=True, slots=True, eq=False)
class NormalScores:
    """The map of every feature, given by its knots (m × levels, not falling), whose scores are `reach` times SCORES."""

    knots: FloatArray
    reach: FloatArray  # m

    def straight(self) -> NDArray[np.bool_]:
        """Which features are only centred and scaled."""
        slopes = np.diff(self.knots, axis=1) / np.diff(SCORES)
        return np.asarray(np.ptp(slopes, axis=1) <= 1e-6 * np.abs(slopes).max(axis=1))

    def graded(self) -> NDArray[np.bool_]:
        """Which features are scored by the ranks of their values, of which they have few."""
        return np.asarray(self.reach > GRADED)

    def grouped(self) -> NDArray[np.bool_]:
        """Which features have their values in groups with hardly any between. There neighbouring knots lie far apart
        with close ones on either side, whereas the knots of a single group lie further and further apart outwards."""
        apart = np.lib.stride_tricks.sliding_window_view(np.diff(self.knots, axis=1), NEIGHBOURS, axis=1).sum(axis=2)
        lower, upper = np.minimum.accumulate(apart, axis=1), np.minimum.accumulate(apart[:, ::-1], axis=1)[:, ::-1]
        sides = np.maximum(lower[:, : -2 * NEIGHBOURS], upper[:, 2 * NEIGHBOURS :])
        return np.asarray((apart[:, NEIGHBOURS:-NEIGHBOURS] > GAP * sides).any(axis=1))

    def forward(self, values: FloatArray) -> FloatArray:
        """Scores of values (m × n, NaN stays)."""
        maps = zip(self._maps(), values, strict=True)
        return np.array([one.forward(row) for one, row in maps]).reshape(values.shape)

    def backward(self, scores: FloatArray) -> FloatArray:
        """Values that have these scores."""
        maps = zip(self._maps(), scores, strict=True)
        return np.array([one.backward(row) for one, row in maps]).reshape(scores.shape)

    def at(self, rows: NDArray[np.intp], values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Scores, and their slopes, of values (k × d) of single features: those of `rows` (d)."""
        scores, slopes = np.zeros(values.shape), np.ones(values.shape)
        for row in np.unique(rows):
            here, one = rows == row, _tails(self.knots[row].tobytes(), float(self.reach[row]))
            scores[:, here], slopes[:, here] = one.forward(values[:, here]), one.slope_at(values[:, here])
        return scores, slopes

    def _maps(self) -> Iterator[_Tails]:
        return (_tails(knots.tobytes(), float(reach)) for knots, reach in zip(self.knots, self.reach, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class _Tails:
    """One feature's map: distinct knots with their scores, and slope and growth of the lower and the upper tail."""

    values: FloatArray
    scores: FloatArray
    slope: tuple[float, float]
    growth: tuple[float, float]

    @staticmethod
    def of(knots: FloatArray, at: FloatArray) -> _Tails:
        rises = np.diff(knots) > 0.0
        values, place = knots[np.concatenate([[True], rises])], np.concatenate([[0], np.cumsum(rises)])
        scores = np.bincount(place, at) / np.bincount(place)
        whole = max(float((knots[-1] - knots[0]) / (at[-1] - at[0])), np.finfo(np.float64).tiny)
        lower, upper = (_tail(side, at, whole) for side in (-knots[::-1], knots))
        return _Tails(values, scores, (lower[0], upper[0]), (lower[1], upper[1]))

    def forward(self, values: FloatArray) -> FloatArray:
        out = np.interp(values, self.values, self.scores)
        under, over = self.values[0] - values, values - self.values[-1]
        for sign, off, end, slope, growth in zip((-1, 1), (under, over), (0, -1), self.slope, self.growth, strict=True):
            if not (off > 0.0).any():
                continue
            size = np.maximum(off, 0.0) / slope
            far = np.log1p(growth * size) / growth if growth > 0.0 else size
            out = np.where(off > 0.0, self.scores[end] + sign * far, out)
        return np.asarray(out)

    def slope_at(self, values: FloatArray) -> FloatArray:
        """How fast scores grow with values."""
        inner = np.append(np.diff(self.scores) / np.diff(self.values), 1.0 / self.slope[1])
        out = inner[np.clip(np.searchsorted(self.values, values, side="right") - 1, 0, inner.size - 1)]
        under, over = self.values[0] - values, values - self.values[-1]
        for off, slope, growth in zip((under, over), self.slope, self.growth, strict=True):
            out = np.where(off > 0.0, 1.0 / (slope + growth * np.maximum(off, 0.0)), out)
        return np.asarray(out)

    def backward(self, scores: FloatArray) -> FloatArray:
        out = np.interp(scores, self.scores, self.values)
        under, over = self.scores[0] - scores, scores - self.scores[-1]
        for sign, off, end, slope, growth in zip((-1, 1), (under, over), (0, -1), self.slope, self.growth, strict=True):
            if not (off > 0.0).any():
                continue
            size = np.maximum(off, 0.0)
            far = np.expm1(np.minimum(growth * size, 200.0)) / growth if growth > 0.0 else size
            out = np.where(off > 0.0, self.values[end] + sign * slope * far, out)
        return np.asarray(out)


@lru_cache(maxsize=1 << 12)
def _tails(knots: bytes, reach: float) -> _Tails:
    """The map of a feature with these knots; kept, because every score that a site forms asks for it."""
    return _Tails.of(np.frombuffer(knots), reach * SCORES)


def _tail(knots: FloatArray, at: FloatArray, whole: float) -> tuple[float, float]:
    """The slope of the upper tail, and how fast slopes grow towards it; 0 where they do not."""
    inner = float((knots[OUTER] - knots[MIDDLE]) / (at[OUTER] - at[MIDDLE]))
    least = LEAST_SLOPE_OF_STEPS if at[-1] > GRADED * SCORES[-1] else LEAST_SLOPE
    outer = max(float((knots[-1] - knots[OUTER]) / (at[-1] - at[OUTER])), least * whole)
    if inner <= 0.0 or outer <= inner:
        return outer, 0.0
    growth = 2.0 * np.log(outer / inner) / (at[-1] - at[MIDDLE])
    return outer, float(min(growth, MOST_GROWTH)) if growth > 1e-3 else 0.0

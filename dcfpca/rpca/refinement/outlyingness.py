"""Finds columns that lie far from most others as a whole, so that the model is made without them.

Stahel's and Donoho's outlyingness: a column's largest distance from the median, in median deviations, over fixed
directions. Every feature is in units of its spread and clipped, so that a few gross entries do not make a column
outlying. Medians and deviations follow from counts that ride along in the refinement rounds. At most the most outlying
third is set aside, and only columns that lie further out than normal ones do along any direction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.hidden_entries import GOLDEN, mixed
from dcfpca.rpca.refinement.noise_scale import Bins, count_sides, count_sizes, deviation, median_of_sides
from dcfpca.rpca.small_cells import merge_cells, merge_sides
from dcfpca.rpca.stage_checks import of_figures, worst

DIRECTIONS = 100
FEATURES = 64  # features of a direction at most: more would take time and show nothing new
CLIP = 3.0  # spreads
FAR = NormalDist().inv_cdf(1.0 - 0.005 / (2.0 * DIRECTIONS))  # one normal column in 200 lies further out
OF_FEW = 1.0  # over the root of the columns: medians of few may move by this much more
STILL = 0.3  # how far centres, in scales, and logarithms of scales may still move (root mean square)
HALF = 0.5  # of a feature's entries: if this many are equal, it has no median deviation
CALM = 2.0 / 3.0  # of the columns take part at least
OUTLYING_BINS = Bins(octaves=4, per_octave=24)
PLACE_BINS = Bins(octaves=5, per_octave=2)  # clipped features and unit directions: places are of order one
FIGURES = 2 * DIRECTIONS + 1
PLACES = 2 * DIRECTIONS * PLACE_BINS.count
COUNTS = PLACES + OUTLYING_BINS.count


@lru_cache(maxsize=8)
def directions(rows: int) -> scipy.sparse.csr_array:
    """The directions (DIRECTIONS × m), the same at every site: normal deviates from whole-number arithmetic."""
    keys = np.arange(1, DIRECTIONS * rows + 1, dtype=np.uint64).reshape(DIRECTIONS, rows) * GOLDEN
    chosen = np.argsort(mixed(keys.copy()), axis=1, kind="stable")[:, :FEATURES]
    uniform = (mixed(np.take_along_axis(keys, chosen, axis=1) ^ GOLDEN) >> np.uint64(11)).astype(np.float64)
    deviates = scipy.special.ndtri((uniform + 0.5) / 2.0**53)
    deviates /= np.linalg.norm(deviates, axis=1, keepdims=True)
    ends = np.arange(DIRECTIONS + 1) * chosen.shape[1]
    return scipy.sparse.csr_array((deviates.ravel(), chosen.ravel(), ends), shape=(DIRECTIONS, rows))


def stand_still(moves: Iterable[FloatArray], most: float, columns: float) -> bool:
    """Whether figures of this many columns moved by no more than this, plus what merged cells of few columns move
    them."""
    return all(np.sqrt(np.mean(move**2)) <= _chance(most, columns) for move in moves)


def searched_for(moves: Iterable[FloatArray], most: float, columns: float) -> bool:
    """Whether all figures moved by more than that: while some stand still, the others only fluctuate."""
    largest = np.max([np.abs(move) for move in moves], axis=0)
    return bool(largest.min(initial=np.inf) > _chance(most, columns))


def _chance(most: float, columns: float) -> float:
    return float(most + OF_FEW / np.sqrt(max(columns, 1.0)))


class Features(Protocol):
    """What is known of every feature."""

    @property
    def median(self) -> FloatArray:
        """The median of its values."""
        ...

    @property
    def spread(self) -> FloatArray:
        """The spread of its values about the median."""
        ...

    @property
    def few(self) -> NDArray[np.bool_]:
        """Whether it has few values."""
        ...

    @property
    def one_value(self) -> FloatArray:
        """The share of its entries that have its commonest value."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Outlyingness:
    """Median and deviation of all columns along each direction, and the outlyingness beyond which a column is set
    aside; 0 until it is known."""

    centre: FloatArray
    scale: FloatArray
    cut: float

    @staticmethod
    def unknown() -> Outlyingness:
        """Before anything was counted."""
        return Outlyingness(np.zeros(DIRECTIONS), np.ones(DIRECTIONS), 0.0)

    def scalars(self) -> FloatArray:
        """As they stand in a broadcast."""
        return np.concatenate([self.centre, self.scale, [self.cut]])

    @staticmethod
    def of(scalars: FloatArray) -> Outlyingness:
        """Inverse of `scalars`."""
        centre, scale, cut = np.split(scalars, [DIRECTIONS, 2 * DIRECTIONS])
        return Outlyingness(centre, scale, float(cut[0]))

    def calm(self, M: FloatArray, features: Features) -> NDArray[np.bool_]:
        """Which of these columns (NaN: unobserved) take part."""
        return self.calm_places(_projected(M, features) if self.cut > 0.0 else np.zeros((0, M.shape[1])))

    def calm_places(self, places: FloatArray) -> NDArray[np.bool_]:
        """Which columns with these places along the directions take part."""
        if self.cut <= 0.0:
            return np.ones(places.shape[1], dtype=bool)
        return np.asarray(self._sizes(places) <= self.cut)

    @staticmethod
    def places(M: FloatArray, features: Features) -> FloatArray:
        """Of these columns, DIRECTIONS × n."""
        return _projected(M, features)

    def counts(self, places: FloatArray) -> FloatArray:
        """Of columns with these places, how far they lie above and below each centre, and how outlying they are."""
        sides = count_sides(places - self.centre[:, None], self.scale, PLACE_BINS, 0.0)
        sizes = count_sizes(self._sizes(places)[None, :], np.ones(1), OUTLYING_BINS)[0]
        return np.concatenate([*(side.ravel() for side in sides), sizes])

    @staticmethod
    def merged(counts: FloatArray, least: int) -> FloatArray:
        """Counts with small cells merged, along each direction from the lowest place to the highest."""
        above, below, sizes = np.split(counts, [PLACES // 2, PLACES])
        above, below = (side.reshape(DIRECTIONS, PLACE_BINS.count) for side in (above, below))
        below, above = merge_sides(below, above, least)
        return np.concatenate([above.ravel(), below.ravel(), merge_cells(sizes[None, :], least)[0]])

    def after(self, counts: FloatArray, still: bool, settled: bool) -> Outlyingness:
        """From the pooled counts; columns are set aside once the features' units and these figures stand still. Where
        units are `settled`, the figures of two rounds are averaged, because those from merged counts of few columns
        fluctuate."""
        above, below, sizes = np.split(counts, [PLACES // 2, PLACES])
        above, below = (side.reshape(DIRECTIONS, PLACE_BINS.count) for side in (above, below))
        centre = self.centre + median_of_sides(above, below, self.scale, PLACE_BINS)
        scale = deviation(above + below, self.scale, 0.5, PLACE_BINS)
        if settled:
            centre, scale = 0.5 * (self.centre + centre), np.sqrt(self.scale * scale)
        calmest = OUTLYING_BINS.edges[max(int(np.searchsorted(np.cumsum(sizes), CALM * sizes.sum())) - 1, 0)]
        moved = (centre - self.centre) / scale, np.log(scale / self.scale)
        still = (still or settled) and stand_still(moved, STILL, float(sizes.sum()))
        return Outlyingness(centre, scale, max(FAR, float(calmest)) if still else 0.0)

    def apart(self, other: Outlyingness) -> float:
        """How far announced figures are from these, in units of rounding."""
        return worst(
            of_figures(self.centre, other.centre, self.scale),
            of_figures(self.scale, other.scale),
            of_figures(self.cut, other.cut),
        )

    def implausible(self) -> str:
        """Why no counts can give these figures; empty if they are plausible."""
        possible = (self.scale > 0.0).all() and (self.cut == 0.0 or self.cut >= FAR * (1.0 - 1e-9))
        return "" if possible else "the columns' outlyingness has an impossible scale"

    def _sizes(self, places: FloatArray) -> FloatArray:
        off: FloatArray = np.abs(places - self.centre[:, None]) / self.scale[:, None]
        return np.asarray(off.max(axis=0))


def _projected(M: FloatArray, features: Features) -> FloatArray:
    """Columns along the directions, DIRECTIONS × n; unobserved entries count as the median. Features of few values, and
    features with half of their entries equal, are left out: their other values lie far out without being odd."""
    standing = np.clip((M - features.median[:, None]) / features.spread[:, None], -CLIP, CLIP)
    left_out = np.isnan(standing) | (features.few | (features.one_value > HALF))[:, None]
    return np.asarray(directions(len(M)) @ np.where(left_out, 0.0, standing))

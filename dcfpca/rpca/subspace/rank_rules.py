"""Rules for the rank: which directions enter L, with what weight, and which are deferred or not updated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.subspace.rayleigh_ritz import NUMERICALLY_ABSENT
from dcfpca.rpca.subspace.schedule import Schedule
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.rpca.subspace.state import State
from dcfpca.rpca.subspace.stopping import noise_governs
from dcfpca.rpca.thresholds import firm_weights

MOVING = 0.1  # L moved by more than this share of itself in the last round
DOMINANT = 3.5  # a singular value this many times the median of all
HELD_ROUNDS = 12  # rounds in a row that wait for strong directions to come to rest; some never do
# Rounding alone makes singular values of about ε √max(m,n) σ_1. A run without a tolerance comes down to them, and they
# must not pass for directions.
ROUNDING = 8.0 * np.finfo(np.float64).eps


@dataclass(frozen=True, slots=True)
class RankRules:
    """The rules for a matrix of `rows` rows, where `width` is the rank, or an upper bound of it."""

    rows: int
    width: int
    fixed_rank: bool
    settings: SubspaceSettings

    def weights(
        self, values: FloatArray, schedule: Schedule, columns: float, stretch: float, moving: bool
    ) -> FloatArray:
        """d, from firm thresholding of the singular values; directions above a gap enter whole.

        A fixed rank under final thresholds means every direction that is numerically there. `stretch` is how much
        larger momentum's step makes Y, and its noise.
        """
        by_noise = not self.fixed_rank or (moving and has_dominant_value(values))
        if not by_noise and noise_governs(schedule, self.settings):
            return np.where(values > NUMERICALLY_ABSENT * values[0], 1.0, 0.0)
        bar = self._outlier_bar(values[0], schedule, columns)
        if by_noise:
            bar = max(bar, self._noise_bar(stretch * schedule.influence, columns))
        # A cap at half the largest keeps an early overestimate from emptying L.
        weights = firm_weights(values, min(bar, values[0] / 2.0), self.settings.b)
        entering = int(np.count_nonzero(weights))
        if 0 < entering < self.width and self._gap_after(values, entering):
            weights[:entering] = 1.0
        return weights

    def _outlier_bar(self, largest: float, schedule: Schedule, columns: float) -> float:
        """While λ falls, a direction that outliers under λ could have made must wait, also where the rank is given; one
        that rounding could have made never enters."""
        side = np.sqrt(max(self.rows, columns))
        return float(max(self.settings.rank_entry * side * schedule.entry, ROUNDING * side * largest))

    def _noise_bar(self, deviation: float, columns: float) -> float:
        """The largest singular value that noise of this deviation makes, times a margin.

        It holds for an upper bound on the rank, and for a given rank while one direction dominates and L still moves:
        what is not yet explained of that direction looks like directions of its own.
        """
        return float(self.settings.rank_noise * (np.sqrt(self.rows) + np.sqrt(columns)) * deviation)

    def deferred_directions(self, values: FloatArray, old: State, round: int) -> slice:
        """The directions beyond the first gap; they may enter L only after the stronger ones have converged.

        Until then, what is not yet explained of the strong ones looks like directions of its own; once these are in L,
        the entries that could tell lie beyond the threshold, and they stay.
        """
        gaps = np.flatnonzero(self._gaps(values))
        at_rest = old.change <= MOVING or old.held >= HELD_ROUNDS
        if at_rest or not gaps.size or (self.fixed_rank and not has_dominant_value(values)):
            return slice(self.width, None)
        entered = int(np.count_nonzero(old.weights)) if round > 1 else 0
        return slice(max(int(gaps[0]) + 1, entered), None)

    def narrow_rounds(self, old: State, weights: FloatArray, values: FloatArray, change: float) -> int:
        """The consecutive rounds, including the next, that update only entering directions; 0 for a wide round.

        The others rest where a gap in the singular values separates them, and where the rank stands while L moves
        little. A wide round in between finds what was hidden below the bar. Where the rank is given none may rest: a
        direction that the first sketch has hardly caught looks absent, and rows lock while it is.
        """
        entering = int(np.count_nonzero(weights))
        if self.fixed_rank or not 0 < entering < self.width or old.narrow >= self.settings.narrow_rounds:
            return 0
        same_rank = entering == np.count_nonzero(old.weights)
        quiet = same_rank and (change < self.settings.narrow_below or old.narrow > 0)
        return old.narrow + 1 if quiet or self._gap_after(values, entering) else 0

    def _gap_after(self, values: FloatArray, entering: int) -> bool:
        """True if a gap follows the first `entering` singular values, so that they surely are directions of L."""
        return bool(self._gaps(values)[entering - 1])

    def _gaps(self, values: FloatArray) -> NDArray[np.bool_]:
        """For each singular value but the last, whether a gap follows it."""
        gaps: NDArray[np.bool_] = values[:-1] / self.settings.narrow_gap >= values[1:]
        return gaps


def has_dominant_value(values: FloatArray) -> bool:
    """True if the largest singular value exceeds DOMINANT times the median."""
    return bool(values[0] > DOMINANT * float(np.median(values)))

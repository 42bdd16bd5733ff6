"""Rules for the rank: which directions enter L, with what weight, and which are deferred or not updated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.subspace.round_plan import State
from dcfpca.rpca.subspace.schedule import Schedule, noise_governs
from dcfpca.rpca.subspace.settings import SubspaceSettings

NUMERICALLY_ABSENT = 1e-12  # of the largest
MOVING = 0.1  # L moved by more than this share of itself in the last round
DOMINANT = 3.5  # a singular value this many times the median of all
STANDING = 1e-2  # L moved by less than this share of itself, and …
STANDING_NOISE = 0.7  # … the noise fell to no less than this share: what is left unexplained waits for a direction
WELL_ABOVE = 15.0  # noises: a λ this high has not come down to the noise, which may be a direction that rests
EVIDENT = 2.0  # a singular value this many times what noise alone makes
EVIDENT_AS_LAST = 3.0  # … of the last direction, which no smaller one is there to compare with
DENSE = 4.0  # the largest ratio of a singular value to that of a matrix with the median residual in every entry
LOCAL = 0.1  # Σu⁴ of a direction; 3/m for one spread over all m features, 1/k for one on k of them
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

        A fixed rank under final thresholds means every direction that is numerically there. Before, where one direction
        dominates, the others must stand out of the noise, as with a bound: outliers below λ make directions that are as
        strong as weak ones of L, and stay once they have entered. `stretch` is how much larger momentum's step makes Y,
        and its noise.
        """
        final = noise_governs(schedule, self.settings)
        by_noise = not self.fixed_rank or (has_dominant_value(values) and (moving or not final))
        if final and not by_noise:
            return np.where(values > NUMERICALLY_ABSENT * values[0], 1.0, 0.0)
        # While λ falls, a direction that outliers under λ could have made must wait, also where the rank is given; one
        # that rounding could have made never enters.
        bar = self.settings.rank_entry * np.sqrt(max(self.rows, columns)) * schedule.entry
        bar = max(float(bar), self._rounding_bar(values[0], columns))
        if by_noise:
            bar = max(bar, self._noise_bar(stretch * schedule.influence, columns))
        # A cap at half the largest keeps an early overestimate from emptying L.
        weights = firm_weights(values, min(bar, values[0] / 2.0), self.settings.b)
        entering = int(np.count_nonzero(weights))
        if 0 < entering < self.width and self._gap_after(values, entering):
            weights[:entering] = 1.0
        return weights

    def with_evident_directions(
        self, weights: FloatArray, U: FloatArray, values: FloatArray, old: State, schedule: Schedule, columns: float
    ) -> FloatArray:
        """d with the directions that enter before λ has come down to them, because only L can have made them.

        While L stands, a weak direction would otherwise wait for a λ that waits for the residual it leaves. Three signs
        distinguish it from directions made by outliers below λ: those do not raise the median residual, a single
        outlier makes a direction of one feature, and many make singular values without a gap to the next. A direction
        that entered this way stays while a gap follows it.
        """
        stretch, entering = old.schedule.step / old.schedule.relaxation, int(np.count_nonzero(weights))
        least = self._noise_bar(stretch * schedule.influence, columns)
        evident = values > max(EVIDENT * least, self._rounding_bar(values[0], columns))
        evident[entering:] &= np.sum(U[:, entering:] ** 4, axis=0) <= LOCAL
        more = int(np.argmin(np.append(evident, False)))
        kept = min(more, int(np.count_nonzero(old.weights == 1.0)))
        entered = max(entering, kept) if self._parted(values, kept, least) else entering
        dense = DENSE * np.sqrt(self.rows * columns) * schedule.noise
        if standing(old, old.change, schedule.noise) and entered < more and values[entered] <= dense:
            entered = more if self._parted(values, more, least) else entered
        return np.where(np.arange(self.width) < entered, 1.0, weights) if entered > entering else weights

    def _parted(self, values: FloatArray, entering: int, least: float) -> bool:
        """True if a gap parts the first `entering` singular values from the rest; from noise, where the rank is given
        and there is no rest."""
        if 0 < entering < self.width:
            return self._gap_after(values, entering)
        return self.fixed_rank and entering > 0 and bool(values[-1] > EVIDENT_AS_LAST * least)

    def _rounding_bar(self, largest: float, columns: float) -> float:
        return float(ROUNDING * np.sqrt(max(self.rows, columns)) * largest)

    def _noise_bar(self, deviation: float, columns: float) -> float:
        """The largest singular value that noise of this deviation makes, times a margin.

        It holds for an upper bound on the rank, and for a given rank while one direction dominates and L still moves or
        λ still falls: what is not yet explained of that direction looks like directions of its own.
        """
        return float(self.settings.rank_noise * (np.sqrt(self.rows) + np.sqrt(columns)) * deviation)

    def deferred_directions(self, values: FloatArray, old: State) -> slice:
        """The directions beyond the first gap, which may enter L only after the stronger ones have converged.

        Until then the unexplained part of the strong ones looks like further directions; once these are in L they stay,
        because the entries that contradict them lie beyond the threshold.
        """
        gaps = np.flatnonzero(values[:-1] / self.settings.narrow_gap >= values[1:])
        at_rest = old.change <= MOVING or old.held >= HELD_ROUNDS
        if at_rest or not gaps.size or (self.fixed_rank and not has_dominant_value(values)):
            return slice(self.width, None)
        entered = int(np.count_nonzero(old.weights)) if old.number > 1 else 0
        return slice(max(int(gaps[0]) + 1, entered), None)

    def narrow_rounds(self, old: State, weights: FloatArray, values: FloatArray, change: float, noise: float) -> int:
        """The consecutive rounds, including the next, that update only entering directions; 0 for a wide round.

        The others rest where a gap in the singular values separates them, and where the rank stands while L moves
        little. A wide round in between finds what was hidden below the bar; where L and the noise stand it comes at
        once, for then they wait for a direction that rests. Where the rank is given none may rest: a direction that the
        first sketch has hardly caught looks absent, and rows lock while it is.
        """
        entering = int(np.count_nonzero(weights))
        if self.fixed_rank or not 0 < entering < self.width or old.narrow >= self.settings.narrow_rounds:
            return 0
        if old.narrow and standing(old, change, noise) and old.schedule.level > WELL_ABOVE * noise:
            return 0
        same_rank = entering == np.count_nonzero(old.weights)
        quiet = same_rank and (change < self.settings.narrow_below or old.narrow > 0)
        return old.narrow + 1 if quiet or self._gap_after(values, entering) else 0

    def _gap_after(self, values: FloatArray, entering: int) -> bool:
        """True if a gap follows the first `entering` singular values, so that they surely are directions of L."""
        return bool(values[entering - 1] / self.settings.narrow_gap >= values[entering])


def firm_weights(values: FloatArray, threshold: float, b: float) -> FloatArray:
    """firm(σ; ρ, b)/σ for singular values: 0 for those under ρ, 1 for those over bρ."""
    weights = np.zeros_like(values)
    over = values[values > threshold]
    weights[values > threshold] = (over - np.minimum(over, np.maximum((b * threshold - over) / (b - 1.0), 0.0))) / over
    return weights


def standing(old: State, change: float, noise: float) -> bool:
    """True if L hardly moved, and the noise hardly fell from that of the state before."""
    return change < STANDING and noise > STANDING_NOISE * old.schedule.noise


def has_dominant_value(values: FloatArray) -> bool:
    """True if the largest singular value exceeds DOMINANT times the median, the lower one of two in the middle."""
    return bool(values[0] > DOMINANT * values[values.size // 2])

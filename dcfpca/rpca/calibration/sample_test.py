"""Whether a sample is odd as a whole: compares its distance from the others, by the covariance, with a null of its own.

By the chain rule, the squared Mahalanobis distance of a sample is that of its trusted entries and, for every further
one, the square of how many deviations it lies off. Here each of those counts at most CAP², so that one gross entry,
which is listed by itself, does not make its sample odd, and many do. Wilson and Hilferty's cube root turns the
distances of samples with any number of entries into nearly normal numbers. Their centre, spread and tail are fitted to
the pooled counts of all samples, together with a broad part for the odd ones. Samples that a model was made from are
judged by the model without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.calibration.expectation import TRUSTED, Expectation, ScoreModel, expect
from dcfpca.rpca.calibration.leave_one_out import Origin, distance_without
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.small_cells import Merging

CAP = TRUSTED
EDGES = np.arange(-20.0, 20.01, 0.25)
"""Of the bins of oddness; the last bin holds all samples that are odder still."""
COUNTS = EDGES.size + 1
LOWER, MIDDLE = 0.2, 0.5  # levels of the first guess: a fifth of odd samples moves them little
LOCATION = np.linspace(-1.5, 1.0, 26)  # of the guess
LESS, MORE, SCALES = 0.5, 4.0, 41  # of the smaller and the larger of the guess and the typical scale
FREEDOM = np.array([4.0, 6.0, 9.0, 14.0, 25.0, 60.0, 1000.0])
TYPICAL_FREEDOM, FREEDOM_SPREAD = 60.0, 1.2  # of the prior, over the logarithm
TYPICAL_SCALE = 1.1  # … of the scale, over the logarithm
ODD = np.array([1e-6, 0.01, 0.02, 0.04, 0.07, 0.11, 0.16, 0.22, 0.3])
TYPICAL_ODD = -4.0  # … of the share of odd samples, over the log-odds
# Scales above the location: such a share of odd samples lies in between, evenly. Towards a group further off than TO
# the null broadens, which spares ordinary samples and loses few of the group; with 12 it stayed narrow, and flagged
# them.
FROM, TO, NEAR = 2.5, 8.0, 0.95
BEYOND = 5.0  # how wide the last bin, which has no end, is taken to be
LEAST_SCALE = 0.25
FEWEST = 2  # features of many values by which samples are judged; with fewer, by all


@dataclass(frozen=True, slots=True)
class Prior:
    """How far the logarithm of the scale, and the log-odds of odd samples, may lie from what is typical; and whether
    what the counts leave open of location and scale widens the null."""

    scale_spread: float
    odd_spread: float
    widened: bool


BY_COVARIANCE = Prior(0.4, 3.0, widened=False)
OF_FEW_SAMPLES = Prior(0.4, 3.0, widened=True)
"""Where the covariance is of fewer samples than features, counts of several sites leave much open: without it, a tenth
of ordinary samples was flagged (60 x 100 at three sites)."""
BY_DIRECTIONS = Prior(2.0, 1.5, widened=True)
"""Where samples are judged by a few directions: a missed direction spreads and skews the distances of ordinary samples
by any factor, which must not make them look odd."""


def oddness(model: ScoreModel, scores: FloatArray, found: Expectation, origin: Origin | None = None) -> FloatArray:
    """How odd these samples (m × n, NaN: unobserved) are, given what is expected of their entries and what the model
    was made from (None: from others).

    Features of few values have distances that no normal number describes, and are left out.
    """
    z, used, within = found.z(scores), ~model.few, found
    if np.count_nonzero(used) < FEWEST:
        used[:] = True
    if not used.all():
        part = ScoreModel(model.centre[used], model.factor[used], model.own[used], model.few[used])
        within = expect(part, scores[used], found.trusted[used])
    distance = within.distance
    if origin is not None and origin.matters(len(scores)):
        distance = distance_without(model, scores, found, within, used, origin)
    return normal_distance(distance, z[used], found.trusted[used])


def normal_distance(squared: FloatArray, z: FloatArray, trusted: NDArray[np.bool_]) -> FloatArray:
    """The cube root, in normal deviations, of squared distances of trusted entries and what distrusted ones (z; NaN:
    unobserved) add to them."""
    seen = ~np.isnan(z)
    added = np.where(seen & ~trusted, np.minimum(np.abs(np.where(seen, z, 0.0)), CAP) ** 2, 0.0).sum(axis=0)
    freedom = np.maximum(np.count_nonzero(seen, axis=0), 1)
    unit = 2.0 / (9.0 * freedom)
    return np.asarray((np.cbrt((squared + added) / freedom) - (1.0 - unit)) / np.sqrt(unit))


def count_oddness(odd: FloatArray) -> FloatArray:
    """How many samples lie in each bin."""
    return np.bincount(np.searchsorted(EDGES, odd), minlength=COUNTS).astype(np.float64)


@dataclass(frozen=True, slots=True)
class SampleNull:
    """How odd ordinary samples are: Student's t about a location, in units of a scale; scale 0 before it is known."""

    location: float = 0.0
    scale: float = 0.0
    freedom: float = 0.0

    def scalars(self) -> FloatArray:
        """As they stand in a broadcast."""
        return np.array([self.location, self.scale, self.freedom])

    def standing(self, odd: FloatArray) -> FloatArray:
        """Oddness in units of the null."""
        return np.asarray((odd - self.location) / self.scale)

    def p_value(self, odd: FloatArray) -> FloatArray:
        """The probability of an ordinary sample at least as odd."""
        return np.asarray(scipy.special.stdtr(self.freedom, -self.standing(odd)))


def fit_sample_null(counts: FloatArray, merging: Merging, prior: Prior = BY_COVARIANCE) -> SampleNull:
    """The most probable null by these pooled counts. It allows for merged groups, which lie less far apart than the
    samples do, and its tail is no lighter than this many samples can show."""
    if not counts.any():
        return SampleNull(0.0, 1.0, float(FREEDOM[-1]))
    lower, middle = np.interp([LOWER, MIDDLE], np.cumsum(counts)[:-1] / counts.sum(), EDGES)
    guess = max((middle - lower) / -NormalDist().inv_cdf(LOWER), LEAST_SCALE)
    # With merged counts of few samples the guess may be chance, so the typical value is tried as well.
    small, large = min(guess, TYPICAL_SCALE), max(guess, TYPICAL_SCALE)
    locations, scales = middle + large * LOCATION, np.geomspace(LESS * small, MORE * large, SCALES)
    samples, share = float(counts.sum()), 1.0 if merging.least == 1 else 0.5  # of samples that merged groups are worth
    weight = _posterior(share * (counts if merging.least == 1 else _spread_out(counts)), locations, scales, prior)
    by_location, by_scale, by_freedom = (weight.sum(axis=tuple({0, 1, 2, 3} - {axis})) for axis in range(3))
    (location, apart), (size, open_size) = _moments(by_location, locations), _moments(by_scale, np.log(scales))
    most, spread = share * samples - 1.0, np.exp(size)
    if prior.widened:  # a normal number whose own variance is known by so many degrees of freedom
        most, spread = min(samples / merging.least - 1.0, 0.5 / max(open_size, 1e-9)), np.hypot(spread, np.sqrt(apart))
    freedom = min(float(np.exp(by_freedom @ np.log(FREEDOM))), max(most, 1.0))
    return SampleNull(location, float(spread) / _merged_deviation(merging), freedom)


def _moments(weight: FloatArray, values: FloatArray) -> tuple[float, float]:
    """Mean and variance."""
    mean = float(weight @ values)
    return mean, float(weight @ (values - mean) ** 2)


def _posterior(counts: FloatArray, locations: FloatArray, scales: FloatArray, prior: Prior) -> FloatArray:
    """How probable every location, scale, freedom and share of odd samples is."""
    filled = np.flatnonzero(counts)
    bins = slice(filled[0], filled[-1] + 1)  # beyond them shares add nothing
    likely = _log_likelihood(locations, scales, counts[bins], bins)
    likely -= 0.5 * (np.log(scales / TYPICAL_SCALE)[:, None, None] / prior.scale_spread) ** 2
    likely -= 0.5 * (np.log(FREEDOM / TYPICAL_FREEDOM)[:, None] / FREEDOM_SPREAD) ** 2
    likely -= 0.5 * ((np.log(ODD / (1.0 - ODD)) - TYPICAL_ODD) / prior.odd_spread) ** 2
    weight = np.exp(likely - likely.max())
    return np.asarray(weight / weight.sum())


def _spread_out(counts: FloatArray) -> FloatArray:
    """Merged counts with half of each group spread evenly over the bins up to the next: groups that happen to share a
    bin would otherwise look like samples that are alike."""
    filled = np.flatnonzero(counts)
    ends = np.concatenate([[filled[0]], filled + 0.5, [filled[-1] + 1]])
    upto = np.cumsum(counts)[filled]
    middle = np.concatenate([[0.0], upto - 0.5 * counts[filled], upto[-1:]])
    return np.diff(np.interp(np.arange(counts.size + 1), ends, middle))


def _merged_deviation(merging: Merging) -> float:
    """The deviation of normal numbers after their counts are merged."""
    ends = np.linspace(-4.0, 4.0, 161)
    shares = np.diff(merging.levels(scipy.special.ndtr(ends)))
    return float(np.sqrt(shares @ (0.5 * (ends[1:] + ends[:-1])) ** 2 / shares.sum()))


def _log_likelihood(locations: FloatArray, scales: FloatArray, counts: FloatArray, bins: slice) -> FloatArray:
    """Of the counts of these bins, for every location, scale, freedom and share of odd samples."""
    ends = np.concatenate([[-np.inf], EDGES, [np.inf]])[bins.start : bins.stop + 1]
    standing = (ends - locations[:, None, None]) / scales[:, None]
    ordinary = np.diff(scipy.special.stdtr(FREEDOM[:, None], standing[:, :, None, :]), axis=3)
    last = np.maximum((EDGES[-1] + BEYOND - locations[:, None, None]) / scales[:, None], TO + 1.0)
    near, far = (np.clip((standing - low) / (high - low), 0.0, 1.0) for low, high in ((FROM, TO), (TO, last)))
    odd = np.diff(NEAR * near + (1.0 - NEAR) * far, axis=2)[:, :, None, :]
    # One share of odd samples at a time: all of them together would take hundreds of megabytes.
    likely = [np.log(np.maximum((1.0 - share) * ordinary + share * odd, 1e-15)) @ counts for share in ODD]
    return np.stack(likely, axis=3)

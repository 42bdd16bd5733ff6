"""What each entry is expected to be, given the other entries of its sample, and how far from that it may lie.

Samples are normal with covariance Σ = F Fᵀ + diag(ψ) in normal scores: low rank plus diagonal, or a whole covariance
with its shrinkage as ψ. Given the entries of a sample that are trusted, A = I + Σ_k f_k f_kᵀ/ψ_k and h_k = f_kᵀA⁻¹f_k,
with e the residuals of the fit, the residual of a trusted entry from the others is e_k/(1 − h_k/ψ_k) and its variance
ψ_k/(1 − h_k/ψ_k): no further solve. Entries that the others contradict are set aside one at a time, worst first, so
that a gross error neither hides itself nor is blamed on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.calibration.normal_scores import SCORES, NormalScores
from dcfpca.rpca.calibration.sample_inverses import LEAST_FREE, SampleInverses, chunks, sample_inverses
from dcfpca.rpca.method import FloatArray

TRUSTED = 4.0  # deviations from what the others say
FAR = 4.0  # scores of a feature of few values: beyond, its entries are not trusted
MOST_OUT = 0.4  # of a sample's entries; one that still contradicts itself has no part in the covariance
LEAST_SHRINKAGE, MOST_SHRINKAGE, SHRINKAGE = 0.01, 0.5, 0.5  # of the covariance to its diagonal; the last times m/n
LEAST_VARIANCE = 1e-8  # of a score, beside what the leading directions have of it
SHAPED, FURTHEST = 1.3, 3.0  # scores: within the first enough samples tell the shape, beyond the last none do
OWN_SHARE = 0.5  # of that variance: related features err alike in their tails, which cancels where relations are known
TAIL_DOUBT = 0.7  # of the distance from the last knot, where the others are sure that an entry lies beyond it
TELLING = 500.0  # samples: with more, that distance is in less doubt
STEP = 0.25  # scores: how exact a value of a feature of few values is
KNEE, END, RISE, RATE = 1.5, 4.0, 1.540793, 0.8622731  # Raymaekers and Rousseeuw's wrapping function


@dataclass(frozen=True, slots=True, eq=False)
class ScoreModel:
    """Normal scores of a sample: mean, F (m × r) and ψ (m, positive); `few` marks features of few values."""

    centre: FloatArray
    factor: FloatArray
    own: FloatArray
    few: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Expectation:
    """Of entries (m × n): expected score, deviation of the score from it, and whether the entry was trusted."""

    score: FloatArray
    deviation: FloatArray
    trusted: NDArray[np.bool_]
    coherent: NDArray[np.bool_]  # n: samples whose trusted entries do not contradict one another
    inverses: SampleInverses
    distance: FloatArray  # n: squared, of the trusted entries from the centre, by their covariance

    def z(self, scores: FloatArray) -> FloatArray:
        """How many deviations entries lie off; NaN where unobserved."""
        return np.asarray((scores - self.score) / self.deviation)


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What the other entries of its sample predict for each entry (m × n), in the data's units, and how many deviations
    it is off; NaN where unobserved. Where entries are judged by scores: the expected score, the deviation of the score
    from it, and whether the entry was trusted."""

    value: FloatArray
    z: FloatArray
    odd: FloatArray  # n: how odd the samples are as a whole
    score: FloatArray
    deviation: FloatArray
    trusted: NDArray[np.bool_]


def model_from_covariance(
    centre: FloatArray, covariance: FloatArray, columns: float, few: NDArray[np.bool_]
) -> ScoreModel:
    """The model with this covariance, shrunk as far as the number of samples asks for, to its leading directions and
    what they leave of each feature. So precise relations stay precise, and chance ones fade."""
    share = shrinkage(len(centre), columns)
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    values = np.maximum(values, 0.0)
    least = chance_variance(len(centre), columns) * max(float(values[(len(values) - 1) // 2]), 1.0)
    leading = np.where(values > least, values, 0.0)
    left = np.maximum((vectors**2) @ (values - leading), LEAST_VARIANCE)
    return ScoreModel(centre, vectors * np.sqrt((1.0 - share) * values + share * leading), share * left, few)


def shrinkage(rows: int, columns: float) -> float:
    """The share of the covariance that its diagonal alone makes up, for this number of features and samples."""
    return float(np.clip(SHRINKAGE * rows / max(columns, 1.0), LEAST_SHRINKAGE, MOST_SHRINKAGE))


def doubt(rows: int, columns: float) -> float:
    """How many times more uncertain tails are than if all relations of features were known: shrinkage removes this much
    of the relations, and tails that would have cancelled do not."""
    return 1.0 / (1.0 - shrinkage(rows, columns)) ** 2


def chance_variance(rows: int, columns: float) -> float:
    """The variance of independent scores of this many samples and one weak factor along a leading direction that is
    half chance: with more, the direction is mostly the factor's (Baik, Ben Arous and Péché)."""
    ratio = rows / max(columns, 1.0)
    factor = 0.5 * (ratio + np.sqrt(ratio**2 + 8.0 * ratio))
    return float((1.0 + factor) * (1.0 + ratio / factor))


def leading_directions(model: ScoreModel, columns: float) -> int:
    """How many of the last factors `model_from_covariance` did not shrink; the others fall short by half its share."""
    rows, squares = len(model.centre), np.sort(np.sum(model.factor**2, axis=0))
    share = shrinkage(rows, columns)
    middle = max(float(squares[(rows - 1) // 2]) / (1.0 - share), 1.0)
    return int(np.count_nonzero(squares > (1.0 - 0.5 * share) * chance_variance(rows, columns) * middle))


def tail_variance(model: ScoreModel, scores: FloatArray, trusted: NDArray[np.bool_], samples: float) -> FloatArray:
    """How much entries (m × n) vary about what the trusted others predict because their own score, or one of the
    others', lies in a tail whose shape is estimated from this many samples: a score s is a quantile, with sampling
    variance Φ(s)Φ(−s)/φ(s)² over their number."""
    share = OWN_SHARE * doubt(len(scores), samples)
    size = np.minimum(np.abs(np.where(np.isnan(scores), 0.0, scores)), FURTHEST)
    level, density = scipy.special.ndtr(-size), np.exp(-0.5 * size**2) / np.sqrt(2.0 * np.pi)
    tail = np.where(size > SHAPED, share * level * (1.0 - level) / density**2, 0.0) / samples
    precision = np.linalg.inv(model.factor @ model.factor.T + np.diag(model.own))
    pull = precision / np.diag(precision)[:, None]
    np.fill_diagonal(pull, 0.0)
    return np.asarray(tail + pull**2 @ (tail * trusted))


def shape_variance(
    shape: NormalScores, scores: FloatArray, expected: FloatArray, deviation: FloatArray, samples: float
) -> FloatArray:
    """How much entries (m × n) vary beside that because no knot tells the shape of a tail, or how wide a step is.

    Where the others expect an entry beyond the outermost knot of its feature and it is there, how far beyond says
    little: as much as they expect that, the distance is in doubt. Many samples show in the units of its sides how a
    bent tail goes on. A feature that is straight as far as its knots tell is taken to go on so, except as far as the
    covariance of so few samples is shrunk, so that it is hardly known what the others expect.
    """
    shrunk, untold = shrinkage(len(scores), samples) / MOST_SHRINKAGE, min(1.0, TELLING / samples)
    end = SCORES[-1] * shape.reach[:, None]
    beyond = np.maximum(np.abs(np.where(np.isnan(scores), 0.0, scores)) - end, 0.0)
    there = scipy.special.ndtr((np.sign(scores) * expected - end) / deviation)
    doubt = TAIL_DOUBT * np.where(shape.straight(), shrunk, max(shrunk, untold))[:, None]
    return np.asarray((doubt * there * beyond) ** 2 + np.where(shape.graded(), STEP, 0.0)[:, None] ** 2)


def expect(model: ScoreModel, scores: FloatArray, trusted: NDArray[np.bool_] | None = None) -> Expectation:
    """Expect every entry of these samples (m × n, NaN: unobserved) from the trusted others, which are found where they
    are not given."""
    X, F, own = scores.T - model.centre, model.factor, model.own
    seen = ~np.isnan(X)
    X, found = np.where(seen, X, 0.0), trusted is not None
    trusted = seen & trusted.T if trusted is not None else seen.copy()
    inverses, leverage = sample_inverses(F, own, trusted)
    coherent = np.ones(len(X), dtype=bool)
    if not found:
        inverses = _distrust(model, X, trusted, inverses, leverage, coherent)
    residual = _residual(F, own, X, trusted, inverses)
    free = np.maximum(1.0 - leverage / own, LEAST_FREE)
    off = np.where(trusted, residual / free, residual)
    variance = np.where(trusted, own / free, own + leverage)
    distance = np.maximum(np.sum(np.where(trusted, X * residual / own, 0.0), axis=1), 0.0)
    return Expectation((X - off + model.centre).T, np.sqrt(variance).T, trusted.T, coherent, inverses, distance)


def _distrust(
    model: ScoreModel,
    X: FloatArray,
    trusted: NDArray[np.bool_],
    inverses: SampleInverses,
    leverage: FloatArray,
    coherent: NDArray[np.bool_],
) -> SampleInverses:
    """Set aside the entries that the others contradict, in place, and find which samples are coherent without them.
    Without entry k leverages grow by (f_jᵀb)², and residuals by f_jᵀb e_k/√(ψ_k − h_k)."""
    F, own, active, most = model.factor, model.own, np.arange(len(X)), np.sum(model.factor**2, axis=1)
    # A⁻¹ is at most I, whatever entries are missing; an excess by rounding would grow step by step.
    least = own**2 / (own + most)
    left = np.maximum(MOST_OUT * trusted.sum(axis=1), 1.0)
    residual, now, done = _residual(F, own, X, trusted, inverses), inverses, []
    while active.size:
        size = np.abs(residual[active]) / np.sqrt(np.maximum(own - leverage[active], least))
        # In a feature of few values, a rare value lies far from what the others predict without being wrong.
        size = np.where(model.few, np.abs(X[active]) * (TRUSTED / FAR), size) * trusted[active]
        worst = size.argmax(axis=1)
        bad = size[np.arange(len(active)), worst] > TRUSTED
        more = bad & (left[active] >= 1.0)
        coherent[active[bad & ~more]] = False
        done.append((active[~more], now.growth[~more]))
        active, worst, now = active[more], worst[more], now.of(more)
        rest = np.sqrt(np.maximum(own[worst] - leverage[active, worst], least[worst]))
        b = now.times(F[worst]) / rest[:, None]
        along = b @ F.T
        residual[active] += along * (residual[active, worst] / rest)[:, None]
        leverage[active] = np.minimum(leverage[active] + along**2, most)
        now = now.grown(b)
        trusted[active, worst] = False
        left[active] -= 1.0
    return inverses.with_growth(done)


def moment_sums(model: ScoreModel, scores: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """The number of coherent samples, and over them Σ x̂ (m) and Σ (x̂x̂ᵀ + C) (m × m): scores with distrusted and
    unobserved entries at their expectation, and the covariance of their uncertainty."""
    F, count, total = model.factor, 0.0, np.zeros(len(model.centre))
    squares = np.zeros((len(total), len(total)))
    for cut in chunks(len(F), F.shape[1], scores.shape[1]):
        found = expect(model, scores[:, cut])
        filled = np.where(found.trusted, scores[:, cut], found.score)[:, found.coherent]
        out = ~found.trusted.T[found.coherent]
        squares += filled @ filled.T + np.diag(out.sum(axis=0) * model.own)
        for sample, row in zip(np.flatnonzero(found.coherent), out, strict=True):
            if row.any():
                place = np.flatnonzero(row)
                inverse = found.inverses.of(np.full(place.size, sample))
                squares[np.ix_(place, place)] += inverse.times(F[place]) @ F[place].T
        count, total = count + float(found.coherent.sum()), total + filled.sum(axis=1)
    return count, total, squares


def model_from_moments(model: ScoreModel, count: float, total: FloatArray, squares: FloatArray) -> ScoreModel:
    """The next model, from the sums of `moment_sums` over all sites."""
    mean = total / max(count, 1.0)
    return model_from_covariance(mean, squares / max(count, 1.0) - np.outer(mean, mean), count, model.few)


def wrapped_sums(scores: FloatArray) -> FloatArray:
    """Σ w wᵀ of wrapped scores, in which gross entries have no part: the first covariance is made from it."""
    size = np.abs(scores)
    bent = RISE * np.tanh(RATE * (END - size)) * np.sign(scores)
    W = np.where(size < KNEE, scores, np.where(size < END, bent, 0.0))
    W = np.where(np.isnan(scores), 0.0, W)
    return np.asarray(W @ W.T)


def correlation_of(sums: FloatArray) -> FloatArray:
    """The correlation matrix of wrapped sums; features that do not vary are correlated with none."""
    deviation = np.sqrt(np.maximum(np.diag(sums), 0.0))
    vary = deviation > 1e-6 * max(float(deviation.max(initial=0.0)), np.finfo(np.float64).tiny)
    found = sums / np.outer(np.where(vary, deviation, 1.0), np.where(vary, deviation, 1.0))
    found = np.where(np.outer(vary, vary), found, 0.0)
    np.fill_diagonal(found, 1.0)
    return found


def _residual(
    F: FloatArray, own: FloatArray, X: FloatArray, trusted: NDArray[np.bool_], inverses: SampleInverses
) -> FloatArray:
    """Residuals of the samples' fit to their trusted entries."""
    return np.asarray(X - inverses.times((X * trusted / own) @ F) @ F.T)

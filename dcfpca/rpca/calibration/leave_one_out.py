"""How far a sample lies from a model that was made without it.

A model lies nearer to the samples that it was made from than to others, and the fewer they were, the nearer. Every site
works out from the shared model what it would be without one of its own samples. Distances from that are distributed as
those of new samples are, whatever the data, so that one null serves both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.calibration.expectation import Expectation, ScoreModel
from dcfpca.rpca.calibration.sample_inverses import SampleInverses
from dcfpca.rpca.method import FloatArray

SURE = 50.0  # samples per feature: with more, no sample moves the model visibly
MEDIAN = 0.6744897501960817  # of the sizes of normal numbers
OF_MEDIAN = 2.3327  # how far an entry moves a variance taken from the median size, in units of it over the samples
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """What a model of scores was made from: how many samples, which of the judged ones (n) are among them, and the
    scores that these had there (m × n), with distrusted ones replaced by what the others predicted.

    Of their covariance it has the `rank` leading directions, its last factors. Of the rest the share `diagonal` is in
    its own variances alone; if that is 1, these are from medians.
    """

    samples: float
    taken: NDArray[np.bool_]
    held: FloatArray
    rank: int
    diagonal: float

    def matters(self, rows: int) -> bool:
        """Whether any of the samples moves the model."""
        return bool(self.taken.any()) and self.samples > 2.0 and moves_by_one(rows, self.samples)


def moves_by_one(rows: int, samples: float) -> bool:
    """Whether leaving out one of these samples moves a model of these features."""
    return samples < SURE * rows


def distance_without(
    model: ScoreModel, scores: FloatArray, found: Expectation, within: Expectation, used: NDArray[np.bool_], by: Origin
) -> FloatArray:
    """Squared distances of samples (m × n) by their `used` features; the model leaves out each `taken` one that it
    judges.

    `found` is what is expected of all entries, `within` what is expected by the used features alone. Without a sample
    that the model holds as x, the covariance of n others is C − xxᵀ/n, up to a factor: its leading part follows from a
    small eigenproblem in the span of the leading directions and of x, the rest loses what x has outside of them, and
    Woodbury's identity gives the distance of the sample as it is trusted now.
    """
    here, share = by.taken, 1.0 / (by.samples - 1.0)
    now = (np.where(found.trusted, scores, found.score)[:, here] - model.centre[:, None]).T
    x = (by.held[:, here] - model.centre[:, None]).T
    leading = model.factor[:, model.factor.shape[1] - by.rank :]
    variance = np.sum(leading**2, axis=0)
    scale = np.where(variance > 0.0, 1.0 / np.sqrt(np.maximum(variance, TINY)), 0.0)
    P = leading * scale
    along = x @ P
    rest = x - along @ P.T
    size = np.linalg.norm(rest, axis=1)
    unit = rest / np.maximum(size, TINY)[:, None]
    outside = share * size**2 + (unit**2) @ model.own / by.diagonal
    change = _change(np.column_stack([along, size]), variance, outside, share, by.diagonal)
    part = _Solver(model.factor[used], model.own[used], within.inverses.of(here), within.trusted.T[here])
    w = part.weights(now[:, used], unit[:, used], scale, change)
    if by.diagonal < 1.0:
        lost, grown = share * by.diagonal * rest[:, used] ** 2, 1.0 + share
    else:
        side = np.sign(np.abs(rest[:, used]) - MEDIAN * np.sqrt(part.own))
        lost, grown = share * OF_MEDIAN * part.own * side, (1.0 + share) ** 2
    distance = within.distance.copy()
    distance[here] = grown * np.maximum(np.sum(now[:, used] * w + lost * w**2, axis=1), 0.0)
    return distance


def _change(x: FloatArray, variance: FloatArray, outside: FloatArray, share: float, diagonal: float) -> FloatArray:
    """The change of Σ (n × r+1 × r+1) within the span of the leading directions and each sample's rest."""
    count, width = x.shape
    product = share * x[:, :, None] * x[:, None, :]
    before = np.zeros((count, width, width))
    before[:, np.arange(width - 1), np.arange(width - 1)] = variance
    C = before - product
    C[:, -1, -1] += outside
    values, vectors = np.linalg.eigh(C)
    kept = vectors[:, :, 1:]
    after = (kept * np.maximum(values[:, None, 1:], 0.0)) @ kept.transpose(0, 2, 1)
    return np.asarray(diagonal * (after - before) - (1.0 - diagonal) * product)


@dataclass(frozen=True, slots=True, eq=False)
class _Solver:
    """Σ⁻¹ over the trusted entries of each sample; vectors (n × m) are taken as 0 at the others."""

    factor: FloatArray
    own: FloatArray
    inverses: SampleInverses
    trusted: NDArray[np.bool_]

    def __call__(self, y: FloatArray) -> FloatArray:
        """Σ⁻¹y."""
        y = np.where(self.trusted, y, 0.0) / self.own
        return y - self._pull(self.inverses.times(y @ self.factor))

    def weights(self, x: FloatArray, unit: FloatArray, scale: FloatArray, change: FloatArray) -> FloatArray:
        """(Σ + S · change · Sᵀ)⁻¹ x of every sample, where S is the last factors, times `scale`, and its own `unit`.

        Of the factors Σ⁻¹F = ψ⁻¹F A⁻¹ and FᵀΣ⁻¹F = I − A⁻¹, so that nothing of the size of S is formed per sample.
        """
        w, solved, first = self(x), self(unit), self.factor.shape[1] - len(scale)
        last, inverse = self.factor[:, first:] * scale, self.inverses.last(first)
        product = np.empty(change.shape)
        product[:, :-1, :-1] = (np.eye(len(scale)) - inverse) * np.outer(scale, scale)
        product[:, :-1, -1] = product[:, -1, :-1] = solved @ last
        product[:, -1, -1] = np.sum(unit * solved, axis=1)
        across = np.column_stack([w @ last, np.sum(unit * w, axis=1)])[:, :, None]
        inner = np.eye(change.shape[1]) + change @ product
        found = np.linalg.solve(inner, change @ across)[:, :, 0]
        along = np.pad(found[:, :-1] * scale, ((0, 0), (first, 0)))
        return np.asarray(w - self._pull(self.inverses.times(along)) - solved * found[:, -1:])

    def _pull(self, along: FloatArray) -> FloatArray:
        """ψ⁻¹F times these coefficients (n × r) at the trusted entries."""
        return np.where(self.trusted, along @ self.factor.T / self.own, 0.0)

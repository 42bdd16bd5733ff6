"""A⁻¹ of every sample, where A = I + Σ f_k f_kᵀ/ψ_k over the sample's trusted entries.

Samples differ by the few entries that are not trusted. Without entry k, A⁻¹ grows by bbᵀ with b = A⁻¹f_k/√(ψ_k − h_k):
so samples share the inverse of all entries, and each has a few vectors b of its own. Only samples with many gaps
relative to the width of A, or with gaps that the others almost determine, have a matrix of their own. With a few
hundred features, a matrix for each sample would take most of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray

CHUNK = 1 << 20  # numbers of the samples' own that are held at a time
STRIP = 1 << 20  # … of products of factors
VECTORS = 16  # directions for which a sample has a vector of its own, for one
MOSTLY, THIN = 0.75, 0.25  # of a sample's entries; and of the features, as directions
MATRIX_EACH = 128  # with at most this many directions, memory is reckoned as if every sample had a matrix of its own
SAFELY_FREE = 1e-6  # of ψ: where the others leave less open of an entry, taking it out of the inverse cancels digits
LEAST_FREE = 1e-12  # of ψ: what the others leave open of an entry
Places = NDArray[np.intp]


def chunks(rows: int, width: int, columns: int) -> Iterator[slice]:
    """Ranges of samples whose own parts fit into memory."""
    # Gaps, and features that determine one another, may give most samples a matrix of their own.
    held = width * (width if width <= MATRIX_EACH else width // 4)
    step = max(1, CHUNK // max(held, rows, 1))
    return (slice(first, min(first + step, columns)) for first in range(0, columns, step))


@dataclass(frozen=True, slots=True, eq=False)
class SampleInverses:
    """A⁻¹ of n samples: `shared` (r × r) or one of `apart`, and BBᵀ with the sample's own B."""

    shared: FloatArray
    apart: FloatArray  # a × r × r
    place: Places  # n: of a sample's matrix in `apart`; −1: it has the shared one
    growth: FloatArray  # n × r × g: B, with zeros for vectors that a sample does not have

    def times(self, vectors: FloatArray) -> FloatArray:
        """A⁻¹ of every sample times its vector (n × r)."""
        found = vectors @ self.shared
        own = np.flatnonzero(self.place >= 0)
        found[own] = np.matmul(self.apart[self.place[own]], vectors[own, :, None])[:, :, 0]
        if self.growth.shape[2]:
            found += np.matmul(self.growth, np.matmul(vectors[:, None, :], self.growth).transpose(0, 2, 1))[:, :, 0]
        return np.asarray(found)

    def last(self, first: int) -> FloatArray:
        """The block of A⁻¹ from this row and column on, of every sample."""
        found = np.repeat(self.shared[None, first:, first:], len(self.place), axis=0)
        own = np.flatnonzero(self.place >= 0)
        found[own] = self.apart[self.place[own], first:, first:]
        B = self.growth[:, first:]
        return np.asarray(found + B @ B.transpose(0, 2, 1))

    def of(self, samples: Places | NDArray[np.bool_]) -> SampleInverses:
        """Those of these samples."""
        return replace(self, place=self.place[samples], growth=self.growth[samples])

    def grown(self, vectors: FloatArray) -> SampleInverses:
        """With one more vector of every sample (n × r)."""
        return replace(self, growth=np.concatenate([self.growth, vectors[:, :, None]], axis=2))

    def with_growth(self, parts: Sequence[tuple[Places, FloatArray]]) -> SampleInverses:
        """With B of these samples in the place of theirs."""
        width = max([part.shape[2] for _, part in parts], default=0)
        growth = np.zeros((*self.growth.shape[:2], width))
        for samples, part in parts:
            growth[samples, :, : part.shape[2]] = part
        return replace(self, growth=growth)


def sample_inverses(F: FloatArray, own: FloatArray, trusted: NDArray[np.bool_]) -> tuple[SampleInverses, FloatArray]:
    """A⁻¹ of every sample with these trusted entries (n × m), and the leverages h_k = f_kᵀA⁻¹f_k (n × m)."""
    width, missing = F.shape[1], np.count_nonzero(~trusted, axis=1)
    gram = np.eye(width) + (F / own[:, None]).T @ F
    shared: FloatArray = np.linalg.inv(gram).astype(np.float64)
    leverage = np.repeat(np.sum((F @ shared) * F, axis=1)[None, :], len(trusted), axis=0)
    few = np.flatnonzero((missing > 0) & (missing * VECTORS <= width))
    vectors, safe = _without(F, own, shared, trusted[few])
    few, vectors = few[safe], vectors[safe]
    growth = np.zeros((len(trusted), *vectors.shape[1:]))
    growth[few] = vectors
    leverage[few] += np.sum(np.matmul(F, vectors) ** 2, axis=2)
    many = np.setdiff1d(np.flatnonzero(missing > 0), few)
    place = np.full(len(trusted), -1)
    place[many] = np.arange(many.size)
    apart = _apart(F, own, gram, trusted[many])
    upper, lower = np.triu_indices(width)
    packed = apart[:, upper, lower] * np.where(upper == lower, 1.0, 2.0)
    for strip, products in _products(F) if many.size else ():
        leverage[many, strip] = packed @ products
    return SampleInverses(shared, apart, place, growth), leverage


def _without(
    F: FloatArray, own: FloatArray, shared: FloatArray, trusted: NDArray[np.bool_]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """B of samples that lack a few entries, A⁻¹Gᵀ(I − GA⁻¹Gᵀ)^(−½) with the rows f_k/√ψ_k of these entries as G; and
    for which samples B keeps the digits of A⁻¹."""
    out = np.sort(np.where(trusted, len(own), np.arange(len(own))), axis=1)
    out = out[:, : int(np.count_nonzero(~trusted, axis=1).max(initial=0))]
    G = np.concatenate([F / np.sqrt(own)[:, None], np.zeros((1, F.shape[1]))])[out]  # the last is that of no entry
    solved = G @ shared
    free, vectors = np.linalg.eigh(np.eye(out.shape[1]) - solved @ G.transpose(0, 2, 1))
    B = solved.transpose(0, 2, 1) @ (vectors / np.sqrt(np.maximum(free, LEAST_FREE))[:, None, :])
    return np.asarray(B), np.asarray(free.min(axis=1, initial=1.0) > SAFELY_FREE)


def _apart(F: FloatArray, own: FloatArray, gram: FloatArray, trusted: NDArray[np.bool_]) -> FloatArray:
    """A⁻¹ of samples that lack many entries."""
    width = F.shape[1]
    found = np.empty((len(trusted), width, width))
    # Taking few gaps out of the whole costs less than adding up the others; where directions are many, it cancels more.
    few = (trusted.mean(axis=1) > MOSTLY) & (width < THIN * len(own))
    if few.any():
        found[few] = gram - _gram(F, scipy.sparse.csr_array(~trusted[few] / own))
    for row in np.flatnonzero(~few):
        here = trusted[row]
        found[row] = np.eye(width) + (F[here] / own[here, None]).T @ F[here]
    return np.asarray(np.linalg.inv(found))


def _gram(F: FloatArray, weights: scipy.sparse.csr_array) -> FloatArray:
    """Σ_k w_k f_k f_kᵀ for every sample's weights (n × m), most of which are zero."""
    upper, lower = np.triu_indices(F.shape[1])
    gram = np.zeros((weights.shape[0], F.shape[1], F.shape[1]))
    for strip, products in _products(F):
        gram[:, upper, lower] += weights[:, strip] @ products.T
    gram[:, lower, upper] = gram[:, upper, lower]
    return gram


def _products(F: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
    """The upper triangles of f_k f_kᵀ as columns, strip by strip of the features."""
    upper, lower = np.triu_indices(F.shape[1])
    height = max(1, STRIP // max(upper.size, 1))
    for first in range(0, len(F), height):
        strip = slice(first, min(first + height, len(F)))
        rows = np.ascontiguousarray(F[strip].T)
        yield strip, rows[upper] * rows[lower]

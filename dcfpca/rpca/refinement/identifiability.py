"""Whether an exact split into low rank and sparse outliers is the only one, from what the aggregator has.

The other entries of its feature and of its sample distinguish an outlier from the low-rank part. If most of these are
outliers too, or if a direction lives on so few features or samples that its entries are as sparse as outliers, another
split explains the same data just as exactly. The number of samples is not published, because it might point at persons.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray

OUTLYING = 64.0  # noises of an exact run: below lies what the tolerance leaves of L
MOSTLY = 0.5  # of a feature's entries
FEW_FEATURES = 0.1  # of all, but at least one: a direction on fewer is as sparse as outliers are
FEW_SAMPLES, FAR_OUT = 0.1, 3.0  # of all; and of the mean T², beyond which a sample may be one of them
LEFT = 0.02  # of a direction's variance, that samples nearer than those have where it lives on few
STARTS, STEPS = 16, 60
ABSENT = 1e-5  # the length of a unit vector outside of the features it lives on


def local_features(U: FloatArray) -> NDArray[np.intp]:
    """The fewest features found that a direction in the span of U (orthonormal columns) lives on; none if on many.

    Alternates between thresholding a vector of the span and projecting it back, from the features with the most
    leverage, where such a direction has its weight. What is found is then certain: its length elsewhere is computed.
    """
    rows, rank = U.shape
    most, none = max(1, int(FEW_FEATURES * rows)), np.zeros(0, dtype=np.intp)
    if not 0 < rank <= rows - most:  # a span this wide has a vector on so few features in any case
        return none
    starts = np.argsort(-np.sum(U**2, axis=1), kind="stable")[:STARTS]
    Q = _unit_columns(U[starts].T)
    for _ in range(STEPS):
        X = U @ Q
        Q = _unit_columns(U.T @ (np.sign(X) * np.maximum(np.abs(X) - 1.0 / np.sqrt(rows), 0.0)))
    supports = [np.sort(np.argsort(-np.abs(x), kind="stable")[:most]) for x in (U @ Q).T]
    held = [support for support in supports if _length_outside(U, support) < ABSENT]
    return _smallest_part(U, held[0]) if held else none


def far_out(rank: int) -> float:
    """The T² beyond which a sample may be one of few that a direction lives on: theirs along it is 1/FEW_SAMPLES."""
    return max(1.0 / FEW_SAMPLES, FAR_OUT * rank)


def lives_on_few(near: FloatArray) -> bool:
    """Whether a direction is hardly used by any sample that is not `far_out`, by the second moments of the others'
    coefficients, of which each has one over all samples."""
    return bool(near.size and np.linalg.eigvalsh(near)[0] < LEFT)


def _length_outside(U: FloatArray, support: NDArray[np.intp]) -> float:
    """The least length that a unit vector of the span has outside of these features."""
    return float(np.linalg.svd(np.delete(U, support, axis=0), compute_uv=False)[-1])


def _smallest_part(U: FloatArray, support: NDArray[np.intp]) -> NDArray[np.intp]:
    """The features of the support that its vector uses."""
    _, _, turned = np.linalg.svd(np.delete(U, support, axis=0))
    used: NDArray[np.intp] = support[np.abs(U[support] @ turned[-1]) > ABSENT]
    return used


def _unit_columns(Q: FloatArray) -> FloatArray:
    lengths = np.linalg.norm(Q, axis=0)
    return np.asarray(Q / np.where(lengths > 0.0, lengths, 1.0))

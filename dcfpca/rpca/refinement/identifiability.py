"""Whether an exact split into low rank and sparse outliers is the only one, from what the aggregator has.

An outlier is told from the low-rank part by the other entries of its feature and of its sample. Where most of these are
outliers too, or where a direction of L lives on so few features and samples that its entries are as sparse as outliers
are, another split explains the same data as exactly: with a in the span of U that is zero off some features, and b in
that of V that is zero off some samples, L − t a bᵀ has one rank less for some t. How few samples is not stated, because
they might be persons.
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.refinement.sparse_directions import ABSENT, sparse_directions
from dcfpca.rpca.small_cells import at_least

OUTLYING = 64.0  # noises of an exact run: below lies what the tolerance leaves of L
MOSTLY = 0.5  # of a feature's entries
# Of all entries: a direction that lives on fewer may just as well be outliers. One site in four may have it throughout.
SPARSE = 0.26
WITHOUT = 0.3  # of a site's samples: those that a direction leaves alone, where the site speaks of it
PER_DIRECTION = 2  # samples that a site has for each direction at least: among fewer, every direction is rare
MOST_FEATURES = 0.7  # of a direction of a block; one on more is taken for one on all
PAIRED = 1e-3  # the least that a direction of features takes of one of samples, where the two make a block


def local_features(U: FloatArray) -> NDArray[np.intp]:
    """The fewest features found that a direction in the span of U (orthonormal columns) lives on; none if on many."""
    most = max(1, int(SPARSE * len(U)))
    found = [direction.places for direction in sparse_directions(U, len(U) - most)]
    return min(found, key=len, default=np.zeros(0, dtype=np.intp))


def samples_without(V: FloatArray, least: int) -> FloatArray:
    """Which combinations of coefficients, in units of their deviations over all sites, most of these samples do not
    have: a matrix of which each is an eigenvector, with their share of the samples as its eigenvalue.

    Fewer than `least` samples that do have one are told as none.
    """
    count, rank = V.shape
    if rank == 0 or count < PER_DIRECTION * rank:
        return np.zeros((rank, rank))
    left, sizes, right = np.linalg.svd(V)
    used = sizes > ABSENT * np.sqrt(count)
    absent, shares = [*right[~used]], [1.0] * int(np.count_nonzero(~used))
    basis = left[:, : len(sizes)][:, used]
    for direction in sparse_directions(basis, int(np.ceil(WITHOUT * count))):
        absent.append(right[used].T @ (direction.coefficients / sizes[used]))
        shares.append(1.0 - at_least(float(direction.places.size), float(least)) / count)
    if not absent:
        return np.zeros((rank, rank))
    # Those that are not quite at right angles must not add up to one that no sample has.
    stacked = np.column_stack([one / np.linalg.norm(one) for one in absent])
    turned, lengths, back = np.linalg.svd(stacked, full_matrices=False)
    kept = lengths > ABSENT
    B = turned[:, kept] @ back[kept]
    return np.asarray((B * shares) @ B.T)


def undetermined_share(U: FloatArray, outliers: float) -> float:
    """The share of samples whose coefficients nothing tells, where this share of all entries are outliers at random: of
    the features that some directions live on they have no more clean entries than there are directions."""
    rows, rank = U.shape
    known = [(rows, rank), *((one.places.size, 1) for one in sparse_directions(U, _least_absent(rows)))]
    return float(max(scipy.special.bdtrc(features - count - 1, features, outliers) for features, count in known))


def features_of_block(U: FloatArray, deviations: FloatArray, without: FloatArray) -> float:
    """The share of the features that a direction lives on which so few samples have that it may just as well be
    outliers; 0 if there is none. `without` is the mean of `samples_without` over the samples of all sites, whose
    coefficients along U (orthonormal columns) have these deviations."""
    values, vectors = np.linalg.eigh(without)
    found = sparse_directions(U, _least_absent(len(U)))
    by_share = sorted((one.places.size / len(U), number) for number, one in enumerate(found))
    for share, number in by_share:
        few = vectors[:, values > 1.0 - SPARSE / share + ABSENT]
        direction = found[number].coefficients / deviations
        if np.linalg.norm(direction @ few) > PAIRED * np.linalg.norm(direction):
            return share
    return float((values > 1.0 - SPARSE + ABSENT).any())


def _least_absent(rows: int) -> int:
    return int(np.ceil((1.0 - MOST_FEATURES) * rows))

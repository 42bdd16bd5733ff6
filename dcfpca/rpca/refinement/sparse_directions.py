"""Directions of a span that vanish at many places, where a span like any other has none. Pure.

Two searches propose them: directions that vanish at a few places drawn at random, which find those that vanish at most
places of a narrow span; and those of least absolute sum, which find those at few places of a wide one. What is found is
certain: that it vanishes there is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.method import FloatArray

ABSENT = 1e-5  # of a unit vector's length: less is not there
BEYOND_CHANCE = 2  # places more than any span of this width can be made to vanish at, less one
DRAWN, NARROW = 600, 24  # drawn subsets of places, and the widest span for which drawing finds anything
STARTS, STEPS = 24, 12  # of the search for least absolute sums
STARTS_OF_WIDE = 8
FIRST_FLOOR, FALL = 0.3, 0.4  # of the sizes that weights are the reciprocals of, in mean sizes; and how fast it falls
TRIED = 16  # of the proposals, those that come nearest


@dataclass(frozen=True, slots=True, eq=False)
class SparseDirection:
    """A unit vector of the span, by its coefficients in the basis, and the places at which it does not vanish."""

    coefficients: FloatArray
    places: NDArray[np.intp]


def sparse_directions(basis: FloatArray, absent: int) -> list[SparseDirection]:
    """Directions found in the span of `basis` (orthonormal columns) that vanish at `absent` places or more."""
    rows, width = basis.shape
    absent = max(absent, width + BEYOND_CHANCE)
    if width == 0 or absent >= rows:
        return []
    proposed = np.column_stack([_through_drawn_places(basis), _of_least_sum(basis)])
    sizes = np.sort(np.abs(basis @ proposed), axis=0)[absent - 1]
    found: list[SparseDirection] = []
    for place in np.argsort(sizes, kind="stable")[:TRIED]:
        one = _sharpened(basis, proposed[:, place], absent)
        if one is not None and all(abs(one.coefficients @ other.coefficients) < 1.0 - ABSENT for other in found):
            found.append(one)
    return found


def _sharpened(basis: FloatArray, proposed: FloatArray, absent: int) -> SparseDirection | None:
    """The direction that vanishes where the proposed one is smallest; None where none does."""
    smallest = np.argsort(np.abs(basis @ proposed), kind="stable")[:absent]
    direction = np.linalg.svd(basis[smallest])[2][-1]
    sizes = np.abs(basis @ direction)
    if np.linalg.norm(sizes[smallest]) > ABSENT:
        return None
    return SparseDirection(direction, np.flatnonzero(sizes > ABSENT))


def _through_drawn_places(basis: FloatArray) -> FloatArray:
    """Directions that vanish at drawn places, one fewer than the span is wide."""
    rows, width = basis.shape
    if width > NARROW:
        return np.zeros((width, 0))
    drawn = np.random.default_rng(0).integers(rows, size=(DRAWN, width - 1))  # the same place twice does no harm
    return np.asarray(np.linalg.qr(basis[drawn].transpose(0, 2, 1), mode="complete")[0][:, :, -1].T)


def _of_least_sum(basis: FloatArray) -> FloatArray:
    """Directions of least Σ|x| beside one product that is held, by reweighted least squares: from the places with most
    leverage, where a direction on few places has its weight."""
    rows, width = basis.shape
    leverage = np.linalg.norm(basis, axis=1)
    most = np.argsort(-leverage, kind="stable")[: STARTS if width <= NARROW else STARTS_OF_WIDE]
    most = most[leverage[most] > ABSENT]
    found = np.empty((width, most.size))
    for number, held in enumerate(basis[most]):
        direction, floor = held / np.linalg.norm(held), FIRST_FLOOR / np.sqrt(rows)
        for _ in range(STEPS):
            weights = floor / np.maximum(np.abs(basis @ direction), floor)
            direction = np.linalg.solve((basis.T * weights) @ basis, held)
            direction, floor = direction / np.linalg.norm(direction), FALL * floor
        found[:, number] = direction
    return found

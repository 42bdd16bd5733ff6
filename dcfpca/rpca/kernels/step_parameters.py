"""The parameters of a local step, and the coefficients it fills in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.kernels.array_types import WorkArray
from dcfpca.rpca.kernels.loop_selection import AWAITED_WIDTHS
from dcfpca.rpca.method import FloatArray

THIN_WIDTH = 6  # up to so many directions, passes that never form L are faster than matrix products …
THIN_COLUMNS = 32  # … over blocks of at least so many columns; blocks of a tall matrix have few


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """The parameters of a site's local passes; all of them come from the broadcast and the settings."""

    U: WorkArray  # m × p, orthonormal columns, in the precision of the round; contiguous where `thin`, for the loops
    scales: FloatArray  # what each direction's coefficients are divided by in the update, the unit included
    threshold: float  # θ
    a: float  # a of firm thresholding
    relaxation: float  # ω of all passes but the last
    step: float  # ω of the last pass, which the update is made of
    noise: float  # the unit of the histogram
    passes: int
    sample: NDArray[np.intp]  # rows on which residuals are counted
    entering: EnteringDirections

    @property
    def thin(self) -> bool:
        """True if the directions are few enough (THIN_WIDTH) for passes that do not form L."""
        return 0 < self.width <= THIN_WIDTH

    def uses_thin_passes(self, M: FloatArray) -> bool:
        """True if the plan is `thin`, its loops are not awaited, and this block has enough columns (THIN_COLUMNS)."""
        return self.thin and self.width not in AWAITED_WIDTHS and M.shape[1] >= THIN_COLUMNS

    @property
    def width(self) -> int:
        """p."""
        return int(self.U.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class EnteringDirections:
    """The directions with d > 0. Only they make L, so only they are worked on until the last pass of a round."""

    places: slice | NDArray[np.intp]  # a slice where they are the first ones, which costs no copies
    U: WorkArray
    weights: WorkArray

    @staticmethod
    def of(U: WorkArray, weights: FloatArray) -> EnteringDirections:
        """Select them; no copy where they are the first ones."""
        places = weights.nonzero()[0]
        where = slice(0, places.size) if are_first(places) else places
        return EnteringDirections(where, select_columns(U, places), weights[where].astype(U.dtype))

    @property
    def count(self) -> int:
        """The number of them."""
        return int(self.weights.size)


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """A site's coefficients (n_i × p) after its passes, or a block's: those of Y, and of the L that Y was made from."""

    V: FloatArray
    L: FloatArray

    @staticmethod
    def empty(columns: int, width: int) -> Coefficients:
        """Uninitialized V, and zeros for L."""
        return Coefficients(np.empty((columns, width)), np.zeros((columns, width)))

    def block(self, first: int, last: int) -> Coefficients:
        """These columns' part, as views."""
        return Coefficients(self.V[first:last], self.L[first:last])


def select_columns(U: WorkArray, places: NDArray[np.intp]) -> WorkArray:
    """These columns: U itself where it is all of them, a view where they are the first ones."""
    if places.size == U.shape[1]:
        return U
    return U[:, : places.size] if are_first(places) else np.take(U, places, axis=1)


def are_first(places: NDArray[np.intp]) -> bool:
    """True if these places, in their order, are 0, 1, 2, …"""
    return places.size == 0 or bool(places[-1] < places.size)


@dataclass(frozen=True, slots=True, eq=False)
class Momentum:
    """Adds β (L − L_before) to Y. The last pass of a block makes 1 + β of L; L_before is a product of thin factors, so
    it is taken out of coefficients alone: of V block by block, and of the update after the last block, by a p × p
    sum."""

    factor: float  # β
    before: WorkArray  # n_i × p, the coefficients of L_before in …
    U_before: WorkArray  # … the subspace it was made in, in the precision of its round
    turn: WorkArray  # U_beforeᵀ U
    before_sum: WorkArray  # Σ over blocks of the coefficients of L_before, transposed, times V̂

    @staticmethod
    def of(factor: float, before: FloatArray, U_before: WorkArray, turn: WorkArray) -> Momentum:
        """Nothing added yet."""
        dtype = turn.dtype
        return Momentum(factor, before.astype(dtype, copy=False), U_before, turn, np.zeros(turn.shape, dtype))

    def take_from_coefficients(self, first: int, V: FloatArray) -> None:
        """Take β L_before out of V of the block that begins at column `first`."""
        V -= self.before[first : first + V.shape[0]] @ (self.factor * self.turn)

    def add_block(self, first: int, right: WorkArray) -> None:
        """Add the block to the sum; `right` is its V̂."""
        self.before_sum[:] += self.before[first : first + right.shape[0]].T @ right

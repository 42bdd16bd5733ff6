"""Momentum of a local step, through thin factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.kernels.array_types import WorkArray
from dcfpca.rpca.method import FloatArray


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

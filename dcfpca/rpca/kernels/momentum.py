"""Momentum of a local step, through thin factors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dcfpca.rpca.kernels.array_types import WorkArray
from dcfpca.rpca.method import FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Momentum:
    """Adds β (L − L_before) to Y. Both are products of thin factors, so only coefficients change: V block by block, and
    the update after the last block, by two p × p sums."""

    factor: float  # β
    before: WorkArray  # n_i × p, the coefficients of L_before in …
    U_before: WorkArray  # … the subspace it was made in, in the precision of its round
    turn: WorkArray  # U_beforeᵀ U
    now_sum: WorkArray  # Σ over blocks of the coefficients of L, transposed, times V̂
    before_sum: WorkArray  # the same of L_before

    @staticmethod
    def of(factor: float, before: FloatArray, U_before: WorkArray, turn: WorkArray) -> Momentum:
        """Nothing added yet."""
        dtype, width = turn.dtype, turn.shape[1]
        sums = np.zeros((width, width), dtype), np.zeros(turn.shape, dtype)
        return Momentum(factor, before.astype(dtype, copy=False), U_before, turn, *sums)

    def add_to_coefficients(self, first: int, V: FloatArray, fitted: FloatArray) -> None:
        """Add momentum to V of the block that begins at column `first`, whose L has the coefficients `fitted`."""
        V += self.factor * (fitted - self.before[first : first + V.shape[0]] @ self.turn)

    def add_block(self, first: int, fitted: FloatArray, right: WorkArray) -> None:
        """Add the block to the sums; `right` is its V̂."""
        self.now_sum[:] += fitted.astype(right.dtype, copy=False).T @ right
        self.before_sum[:] += self.before[first : first + right.shape[0]].T @ right

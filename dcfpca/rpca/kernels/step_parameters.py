"""What a local step works with: its parameters, the coefficients it fills in, momentum, and scratch buffers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.column_blocks import LINE, read_only, row_strided_view
from dcfpca.rpca.kernels.compiled_loops import AWAITED_WIDTHS, THIN_WIDTH
from dcfpca.rpca.method import FloatArray, WorkArray

THIN_COLUMNS = 32  # of a block for thin passes; blocks of a tall matrix have few
ROWS = 4  # rows of influences per step of a thin product


@dataclass(frozen=True, slots=True, eq=False)
class StepPlan:
    """The parameters of a site's local passes; all of them come from the broadcast and the settings."""

    U: WorkArray  # m × p, orthonormal columns, in the precision of the round; contiguous where few, for the loops
    scales: FloatArray  # what each direction's coefficients are divided by in the update, the unit included
    threshold: float  # θ
    a: float  # a of firm thresholding
    relaxation: float  # ω of all passes but the last
    step: float  # ω of the last pass, which the update is made of
    noise: float  # the unit of the histogram
    passes: int
    sample: NDArray[np.intp]  # rows on which residuals are counted
    entering: EnteringDirections

    def is_thin(self, M: FloatArray) -> bool:
        """True if the directions are few enough for passes that do not form L, their loops are not awaited, and this
        block has enough columns."""
        width = self.U.shape[1]
        return 0 < width <= THIN_WIDTH and width not in AWAITED_WIDTHS and M.shape[1] >= THIN_COLUMNS


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
        where = places if places.size and places[-1] >= places.size else slice(0, places.size)
        return EnteringDirections(where, select_columns(U, places), weights[where].astype(U.dtype))


def select_columns(U: WorkArray, places: NDArray[np.intp]) -> WorkArray:
    """These columns: U itself where it is all of them, a view where they are the first ones."""
    if places.size == U.shape[1]:
        return U
    are_first = places.size == 0 or places[-1] < places.size
    return U[:, : places.size] if are_first else np.take(U, places, axis=1)


@dataclass(frozen=True, slots=True, eq=False)
class Coefficients:
    """A site's coefficients (n_i × p) after its passes, or a block's: those of Y, and of the L that Y was made from."""

    V: FloatArray
    L: FloatArray  # zero for directions that do not enter


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


@dataclass(slots=True, eq=False)
class ScratchBuffers:
    """L, Y or influences of one block, in the round's precision, and a copy of its data where the loops need one."""

    L: WorkArray  # aligned to a cache line for thin passes
    data: FloatArray  # of the last block that was copied

    @staticmethod
    def of(size: int, plan: StepPlan) -> ScratchBuffers:
        """Buffers for blocks of up to this many entries; for thin passes, with rows and columns rounded up."""
        rows, line = plan.U.shape[0], LINE // plan.U.itemsize
        if not 0 < plan.U.shape[1] <= THIN_WIDTH:
            return ScratchBuffers(np.empty(size, plan.U.dtype), np.empty((0, 0)))
        most = -(-rows // ROWS) * ROWS * -(-size // (max(rows, 1) * line)) * line
        room = np.empty(most + line, plan.U.dtype)
        begin = -room.ctypes.data % LINE // plan.U.itemsize
        return ScratchBuffers(room[begin : begin + most], np.empty((0, 0)))

    def place(self, M: FloatArray) -> tuple[WorkArray, WorkArray]:
        """M as the loops read it, and a buffer of its shape."""
        there = row_strided_view(M)
        if there is None:
            self.data = self.data if self.data.shape == M.shape else np.empty(M.shape)
            np.copyto(self.data, M)
        return read_only(self.data) if there is None else there, self.L[: M.size].reshape(M.shape)

    def influences(self, rows: int, columns: int) -> WorkArray:
        """A buffer for the influences of a block: a row is a whole number of cache lines."""
        line = LINE // self.L.itemsize
        across = -(-columns // line) * line
        return self.L[: rows * across].reshape(rows, across)

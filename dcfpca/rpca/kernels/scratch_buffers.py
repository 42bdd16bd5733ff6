"""Memory that the blocks of a local step share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dcfpca.rpca.kernels.array_types import Flags, WorkArray
from dcfpca.rpca.kernels.step_plan import StepPlan
from dcfpca.rpca.kernels.thin_pass import pull_buffer
from dcfpca.rpca.method import FloatArray


@dataclass(slots=True, eq=False)
class ScratchBuffers:
    """Room for one block's L, Y or pulls, in the precision of the round, and for a copy of the block where needed."""

    L: WorkArray
    marked: Flags
    data: FloatArray  # the block last laid, as the loops read it: they go by the shape of L, it may be wider

    @staticmethod
    def of(size: int, plan: StepPlan) -> ScratchBuffers:
        """A desk for blocks of up to this many entries."""
        marked = np.empty(size if plan.amending else 0, np.uint8)
        room = pull_buffer(size, plan) if plan.thin else np.empty(size, plan.U.dtype)
        return ScratchBuffers(room, marked, np.empty((0, 0)))

    def place(self, M: FloatArray) -> tuple[WorkArray, WorkArray]:
        """M for the loops to read, and the room beside it."""
        there = row_strided_view(M) if M.dtype == np.float64 else None
        self.data = self._copy(M) if there is None else there
        return self.data, self.L[: M.size].reshape(M.shape)

    def _copy(self, M: FloatArray) -> FloatArray:
        data = self.data if self.data.shape == M.shape else np.empty(M.shape)
        np.copyto(data, M)
        return data


def row_strided_view(M: FloatArray) -> FloatArray | None:
    """M as the first columns of a matrix whose rows follow one another, as loops are compiled for; None if it is not.

    What lies beyond M's columns belongs to somebody else, beyond the last row perhaps to nobody: it must not be read.
    """
    between, size = M.strides[0], M.itemsize
    if M.strides[1] != size or between % size or between < M.shape[1] * size:
        return None
    return as_strided(M, (M.shape[0], between // size))

"""Scratch buffers shared by the blocks of a local step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dcfpca.rpca.kernels.array_types import Flags, WorkArray
from dcfpca.rpca.kernels.fused_low_rank_pass import influence_buffer
from dcfpca.rpca.kernels.step_parameters import StepPlan
from dcfpca.rpca.method import FloatArray


@dataclass(slots=True, eq=False)
class ScratchBuffers:
    """L, Y or influences of one block, in the round's precision, and a copy of its data where the loops need one."""

    L: WorkArray
    marked: Flags
    data: FloatArray  # the last block as the loops read it; may have more columns than L, which are not read

    @staticmethod
    def of(size: int, plan: StepPlan) -> ScratchBuffers:
        """Buffers for blocks of up to this many entries."""
        marked = np.empty(size if plan.amending else 0, np.uint8)
        room = influence_buffer(size, plan) if plan.thin else np.empty(size, plan.U.dtype)
        return ScratchBuffers(room, marked, np.empty((0, 0)))

    def place(self, M: FloatArray) -> tuple[WorkArray, WorkArray]:
        """M as the loops read it, and a buffer of its shape."""
        there = row_strided_view(M) if M.dtype == np.float64 else None
        self.data = self._copy(M) if there is None else there
        return self.data, self.L[: M.size].reshape(M.shape)

    def _copy(self, M: FloatArray) -> FloatArray:
        data = self.data if self.data.shape == M.shape else np.empty(M.shape)
        np.copyto(data, M)
        return data


def row_strided_view(M: FloatArray) -> FloatArray | None:
    """M as the first columns of a C-contiguous matrix, for which the loops are compiled; None where strides forbid it.

    Entries beyond M's columns are other memory, after the last row perhaps unmapped: they must not be read.
    """
    between, size = M.strides[0], M.itemsize
    if M.strides[1] != size or between % size or between < M.shape[1] * size:
        return None
    return as_strided(M, (M.shape[0], between // size))

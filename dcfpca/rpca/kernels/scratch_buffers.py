"""Scratch buffers shared by the blocks of a local step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dcfpca.rpca.kernels.array_types import WorkArray
from dcfpca.rpca.kernels.fused_low_rank_pass import influence_buffer
from dcfpca.rpca.kernels.step_parameters import StepPlan
from dcfpca.rpca.method import FloatArray


@dataclass(slots=True, eq=False)
class ScratchBuffers:
    """L, Y or influences of one block, in the round's precision, and a copy of its data where the loops need one."""

    L: WorkArray
    data: FloatArray  # of the last block that was copied

    @staticmethod
    def of(size: int, plan: StepPlan) -> ScratchBuffers:
        """Buffers for blocks of up to this many entries."""
        room = influence_buffer(size, plan) if plan.thin else np.empty(size, plan.U.dtype)
        return ScratchBuffers(room, np.empty((0, 0)))

    def place(self, M: FloatArray) -> tuple[WorkArray, WorkArray]:
        """M as the loops read it, and a buffer of its shape."""
        there = row_strided_view(M)
        if there is None:
            self.data = self.data if self.data.shape == M.shape else np.empty(M.shape)
            np.copyto(self.data, M)
        return read_only(self.data) if there is None else there, self.L[: M.size].reshape(M.shape)


def readable_by_loops(M: FloatArray) -> FloatArray:
    """M as the loops read it, copied where its strides forbid it; may have more columns, which must not be read."""
    there = row_strided_view(M)
    return read_only(np.ascontiguousarray(M)) if there is None else there


def read_only(M: FloatArray) -> FloatArray:
    """A view that may not be written to: data comes to the loops as such, so that they are compiled for one kind."""
    view = M.view()
    view.flags.writeable = False
    return view


def row_strided_view(M: FloatArray) -> FloatArray | None:
    """M, read-only, as the first columns of a C-contiguous matrix, for which the loops are compiled; None where strides
    forbid it.

    Entries beyond M's columns are other memory, after the last row perhaps unmapped: they must not be read.
    """
    if M.flags.c_contiguous and M.dtype == np.float64:
        return read_only(M)
    between, size = M.strides[0], M.itemsize
    if M.dtype != np.float64 or M.strides[1] != size or between % size or between < M.shape[1] * size:
        return None
    return as_strided(M, (M.shape[0], between // size), writeable=False)

"""Columns cleaned by compiled loops, where numba is installed: the bits of `numpy_cleaning` in fewer passes.

Few entries are gross. So one product UᵀE over all entries gives a₁, and corrected at the gross ones also a₂ and in the
end YᵀU; L₂ is formed at those entries only. All of it is exact (`whole_numbers`), so the order does not matter.
"""

from __future__ import annotations

import numpy as np

from dcfpca.rpca.kernels.scratch_buffers import readable_by_loops
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.cleaning_loops import CompiledLoops
from dcfpca.rpca.private.column_scales import DEVIATIONS, ColumnUnits, residual_scales, sampled
from dcfpca.rpca.private.numpy_cleaning import CONCAVITY, NO_SIGN, Cleaned, rounded_coefficients
from dcfpca.rpca.private.numpy_cleaning import clean as numpy_clean
from dcfpca.rpca.private.whole_numbers import WholeBasis


class CompiledCleaner:
    """Cleans one block after the other in the same memory: what it returns holds until the next block."""

    def __init__(self, loops: CompiledLoops) -> None:
        self._loops = loops
        self._reserve((0, 0))

    def __call__(self, M: FloatArray, units: ColumnUnits, basis: WholeBasis) -> Cleaned:
        """See `numpy_cleaning.clean`, which also serves where there is no L."""
        if not basis.rank:
            return numpy_clean(M, units, basis)
        if self._E.shape != M.shape:
            self._reserve(M.shape)
        E, squares = self._E, np.zeros(M.shape[1])
        self._loops.state(readable_by_loops(M), units.factors, units.limits, basis.fixed.farthest, self._D, E)
        sums = E.T @ basis.whole
        self._amend(units, basis, sums, squares)
        return Cleaned(E, sums * basis.unit + NO_SIGN, squares)

    def _amend(self, units: ColumnUnits, basis: WholeBasis, sums: FloatArray, squares: FloatArray) -> None:
        """Y in the place of E, and its sums and squares in the place of those of E."""
        E, loops, inner = self._E, self._loops, sums[:, : basis.rank].copy()
        coefficients = np.ascontiguousarray(rounded_coefficients(inner, basis).T)
        low = sampled(basis.entering) @ coefficients
        scales = residual_scales(np.ascontiguousarray(sampled(E)), low, units.scales, self._count_small)
        given = self._D, E, basis.entering, coefficients, DEVIATIONS * scales, self._L
        count = loops.mark(*given, self._marks, self._eights, self._rows, self._columns, self._found, squares)
        rows, columns, found = self._rows[:count], self._columns[:count], self._found
        reach = CONCAVITY * (DEVIATIONS * scales)
        loops.amend(found, rows, columns, reach, basis.entering, inner)
        loops.low_rank_entries(basis.entering, rounded_coefficients(inner, basis), rows, columns, found[2])
        loops.amend(found, rows, columns, reach, basis.whole, sums)
        loops.put(E, rows, columns, found[2], squares)

    def _count_small(self, E: FloatArray, L: FloatArray, least: FloatArray) -> FloatArray:
        counts = np.zeros(E.shape[1])
        self._loops.count_small(E, L, least, counts)
        return counts

    def _reserve(self, shape: tuple[int, ...]) -> None:
        size = shape[0] * shape[1] + 8
        self._E, self._D = np.empty(shape), np.empty(shape, np.float32)
        self._L, self._eights = np.empty(shape[1]), np.zeros(-(-shape[1] // 8), np.uint64)
        self._marks = self._eights.view(np.bool_)
        self._rows, self._columns = np.empty(size, np.int32), np.empty(size, np.int32)
        self._found = np.empty((3, size))

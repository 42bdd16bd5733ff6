"""Columns cleaned by compiled loops, where numba is installed: the bits of `numpy_cleaning` in fewer passes.

Few entries are gross. So one product UᵀE over all entries gives a₁, and corrected at the gross ones also a₂ and in the
end YᵀU; L₂ is formed at those entries only. All of it is exact (`whole_numbers`), so the order does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.kernels.numba_compiler import Loop, compiler
from dcfpca.rpca.kernels.scratch_buffers import readable_by_loops
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.column_scales import DEVIATIONS, ColumnUnits, residual_scales, sampled
from dcfpca.rpca.private.numpy_cleaning import CONCAVITY, NO_SIGN, Cleaned
from dcfpca.rpca.private.numpy_cleaning import clean as numpy_clean
from dcfpca.rpca.private.whole_numbers import WholeBasis

Places = NDArray[np.int32]
Marks = NDArray[np.bool_]
SLOPE = 1.0 / (CONCAVITY - 1.0)


def state(M: FloatArray, factors: FloatArray, limits: FloatArray, E: FloatArray, marks: Marks) -> None:
    """E ← M in whole numbers, within the limits, zero where it is missing; marks where E is not M.

    M may have more columns, which are not read.
    """
    for i in range(E.shape[0]):
        for j in range(E.shape[1]):
            x, limit = np.rint(M[i, j] * factors[j]), limits[j]
            within = limit if x > limit else x
            within = -limit if within < -limit else within
            within = within if within >= -limit else 0.0  # NaN fails every comparison
            E[i, j] = within + NO_SIGN
            marks[i, j] = within != x


def mark(E: FloatArray, L: FloatArray, limits: FloatArray, marks: Marks, squares: FloatArray) -> None:
    """Mark also what is beyond the limits from L; adds the squares of all entries without mark."""
    for i in range(E.shape[0]):
        for j in range(E.shape[1]):
            gross = marks[i, j] | (abs(E[i, j] - L[i, j]) > limits[j])
            marks[i, j] = gross
            squares[j] += 0.0 if gross else E[i, j] * E[i, j]


def listed(marks: Marks, rows: Places, columns: Places) -> int:
    """List the marked entries, row by row."""
    count = 0
    for i in range(marks.shape[0]):
        before = count
        for j in range(marks.shape[1]):  # without a branch: which entries are marked cannot be predicted
            columns[count] = j
            count += marks[i, j]
        for place in range(before, count):
            rows[place] = i
    return count


def gather(
    M: FloatArray, factors: FloatArray, farthest: float, L: FloatArray, rows: Places, columns: Places,
    entries: FloatArray, low: FloatArray
) -> None:  # fmt: skip
    """entries ← M in whole numbers at these places, NaN where it is missing, and low ← L there."""
    for place in range(rows.shape[0]):
        i, j = rows[place], columns[place]
        x = np.rint(M[i, j] * factors[j])
        x = farthest if x > farthest else x
        entries[place] = -farthest if x < -farthest else x
        low[place] = L[i, j]


def low_rank_entries(U: FloatArray, coefficients: FloatArray, rows: Places, columns: Places, low: FloatArray) -> None:
    """low ← entries of U · coefficientsᵀ at these places. Exact: its sums may be taken in any order."""
    for place in range(rows.shape[0]):
        i, j = rows[place], columns[place]
        total = 0.0
        for k in range(coefficients.shape[1]):
            total += U[i, k] * coefficients[j, k]
        low[place] = total


def amend(
    entries: FloatArray,
    E: FloatArray,
    rows: Places,
    columns: Places,
    low: FloatArray,
    reach: FloatArray,
    U: FloatArray,
    sums: FloatArray,
) -> None:
    """sums ← those of UᵀE with rint(L + ψ(D − L)) in the place of E at these places; `low` becomes these numbers."""
    for place in range(rows.shape[0]):
        i, j = rows[place], columns[place]
        r = entries[place] - low[place]
        size = abs(r)
        psi = min(size, max((reach[j] - size) * SLOPE, 0.0)) if size >= 0.0 else 0.0
        low[place] = np.rint(low[place] + (psi if r > 0.0 else -psi)) + NO_SIGN
        gross = E[i, j] - low[place]
        for k in range(sums.shape[1]):
            sums[j, k] -= gross * U[i, k]


def put(E: FloatArray, rows: Places, columns: Places, values: FloatArray, squares: FloatArray) -> None:
    """E ← the values at these places, and adds their squares."""
    for place in range(rows.shape[0]):
        i, j = rows[place], columns[place]
        E[i, j] = values[place]
        squares[j] += values[place] * values[place]


@dataclass(frozen=True, slots=True)
class CompiledLoops:
    """The loops above, compiled."""

    state: Loop
    mark: Loop
    listed: Loop
    gather: Loop
    amend: Loop
    put: Loop
    low_rank_entries: Loop


@lru_cache(maxsize=1)
def compiled_loops() -> CompiledLoops | None:
    """The loops, or None without numba. Strictly compiled, no operation fused or moved, but for sums that are exact."""
    compile_one = compiler()
    if compile_one is None:
        return None
    strict = {loop.__name__: compile_one(loop, False) for loop in (state, mark, listed, gather, amend, put)}
    return CompiledLoops(**strict, low_rank_entries=compile_one(low_rank_entries, True))


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
        E, squares, data = self._E, np.zeros(M.shape[1]), readable_by_loops(M)
        self._loops.state(data, units.factors, units.limits, E, self._marks)
        sums = E.T @ basis.whole
        self._amend(data, units, basis, sums, squares)
        return Cleaned(E, sums * basis.unit + NO_SIGN, squares)

    def _amend(
        self, M: FloatArray, units: ColumnUnits, basis: WholeBasis, sums: FloatArray, squares: FloatArray
    ) -> None:
        """Y in the place of E, and its sums and squares in the place of those of E."""
        E, loops, inner = self._E, self._loops, sums[:, : basis.rank].copy()
        L = np.matmul(basis.entering, _coefficients(inner, basis).T, out=self._L)
        scales = residual_scales(np.abs(sampled(E) - sampled(L)), units.scales)
        loops.mark(E, L, DEVIATIONS * scales, self._marks, squares)
        count = loops.listed(self._marks, self._rows, self._columns)
        rows, columns, (entries, low) = self._rows[:count], self._columns[:count], np.empty((2, count))
        loops.gather(M, units.factors, basis.fixed.farthest, L, rows, columns, entries, low)
        given = entries, E, rows, columns, low, CONCAVITY * (DEVIATIONS * scales)
        loops.amend(*given, basis.whole, inner)
        loops.low_rank_entries(basis.entering, _coefficients(inner, basis), rows, columns, low)
        loops.amend(*given, basis.whole, sums)
        loops.put(E, rows, columns, low, squares)

    def _reserve(self, shape: tuple[int, ...]) -> None:
        size = shape[0] * shape[1] + 1
        self._E, self._L = np.empty(shape), np.empty(shape)
        self._marks = np.empty(shape, np.bool_)
        self._rows, self._columns = np.empty(size, np.int32), np.empty(size, np.int32)


def _coefficients(inner: FloatArray, basis: WholeBasis) -> FloatArray:
    """UᵀY rounded to whole numbers, in units in which a product with the whole basis is L."""
    return np.rint(inner * basis.unit) * basis.unit

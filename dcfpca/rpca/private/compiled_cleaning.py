"""The loops of `compiled_cleaning`. They need numba: `cleaning.new_cleaner` checks first.

Products may be fused into sums, all of which are exact (`whole_numbers`); nothing else is moved or fused, so that the
bits are those of `numpy_cleaning`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.kernels.array_types import LINE
from dcfpca.rpca.kernels.numba_compiler import FUSED, RELAXED, Loop, compiler
from dcfpca.rpca.kernels.scratch_buffers import readable_by_loops
from dcfpca.rpca.kernels.simd_pass import prefetch
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.private.column_scales import DEVIATIONS, ColumnUnits, residual_scales, sampled
from dcfpca.rpca.private.numpy_cleaning import CONCAVITY, NO_SIGN, Cleaned, rounded_coefficients
from dcfpca.rpca.private.numpy_cleaning import clean as numpy_clean
from dcfpca.rpca.private.whole_numbers import WholeBasis
from dcfpca.rpca.thresholds import NORMAL_MEDIAN

Places = NDArray[np.int32]
Marks = NDArray[np.bool_]
Stated = NDArray[np.float32]
SLOPE = 1.0 / (CONCAVITY - 1.0)
AHEAD = 8
"""Rows for which data is fetched beforehand."""
LINE_NUMBERS = LINE // 8


def state(
    M: FloatArray, factors: FloatArray, limits: FloatArray, farthest: float, D: Stated, E: FloatArray
) -> None:  # fmt: skip
    """D ← M in whole numbers; E ← D within the limits, zero where it is missing.

    M may have more columns, which are not read.
    """
    for i in range(E.shape[0]):
        for j in range(0, E.shape[1], LINE_NUMBERS):  # the next rows of a block lie far off in memory
            prefetch(M, (i + AHEAD) * M.shape[1] + j)
        for j in range(E.shape[1]):
            x, limit = np.rint(M[i, j] * factors[j]), limits[j]
            within = limit if x > limit else x
            within = -limit if within < -limit else within
            E[i, j] = (within if within >= -limit else 0.0) + NO_SIGN  # NaN fails every comparison
            x = farthest if x > farthest else x
            D[i, j] = np.float32(-farthest if x < -farthest else x)


def count_small(E: FloatArray, L: FloatArray, least: FloatArray, counts: FloatArray) -> None:
    """Adds for each column in how many rows the residual E − L, as a deviation, is no more than `least`."""
    for i in range(E.shape[0]):
        for j in range(E.shape[1]):
            counts[j] += 1.0 if NORMAL_MEDIAN * abs(E[i, j] - L[i, j]) <= least[j] else 0.0


def mark(
    D: Stated, E: FloatArray, U: FloatArray, coefficients: FloatArray, limits: FloatArray, L: FloatArray, marks: Marks,
    eights: NDArray[np.uint64], rows: Places, columns: Places, found: FloatArray, squares: FloatArray
) -> int:  # fmt: skip
    """Lists the entries that are not E's own or are beyond the limits from L = U · coefficients, row by row, and says
    how many: their places and, in `found`, D, E and L there. Adds the squares of all other entries.

    L and marks are memory for one row; marks are as many as `eights`, the same memory, hold, all false at first.
    """
    count, width, whole = 0, coefficients.shape[0], coefficients.shape[0] // 4 * 4
    for i in range(E.shape[0]):
        d, e = D[i], E[i]
        L[:] = 0.0
        for k in range(0, whole, 4):
            u, v, w, x = U[i, k], U[i, k + 1], U[i, k + 2], U[i, k + 3]
            a, b, c, f = coefficients[k], coefficients[k + 1], coefficients[k + 2], coefficients[k + 3]
            for j in range(E.shape[1]):
                L[j] += u * a[j] + v * b[j] + w * c[j] + x * f[j]
        for k in range(whole, width):
            u, a = U[i, k], coefficients[k]
            for j in range(E.shape[1]):
                L[j] += u * a[j]
        for j in range(E.shape[1]):
            gross = (d[j] != e[j]) | (abs(e[j] - L[j]) > limits[j])
            marks[j] = gross
            squares[j] += 0.0 if gross else e[j] * e[j]
        before = count
        for eight in range(eights.shape[0]):
            if eights[eight]:  # then without a branch: which of them are marked cannot be predicted
                for j in range(8 * eight, 8 * eight + 8):
                    columns[count] = j
                    count += marks[j]
        for place in range(before, count):
            j = columns[place]
            rows[place] = i
            found[0, place], found[1, place], found[2, place] = d[j], e[j], L[j]
    return count


def low_rank_entries(U: FloatArray, coefficients: FloatArray, rows: Places, columns: Places, low: FloatArray) -> None:
    """low ← entries of U · coefficientsᵀ at these places."""
    for place in range(rows.shape[0]):
        i, j = rows[place], columns[place]
        total = 0.0
        for k in range(coefficients.shape[1]):
            total += U[i, k] * coefficients[j, k]
        low[place] = total


def amend(found: FloatArray, rows: Places, columns: Places, reach: FloatArray, U: FloatArray, sums: FloatArray) -> None:
    """sums ← those of UᵀE with rint(L + ψ(D − L)) in the place of E at these places; in `found`, see `mark`, these
    numbers take the place of L."""
    for place in range(rows.shape[0]):
        i, j, low = rows[place], columns[place], found[2, place]
        r = found[0, place] - low
        size = abs(r)
        psi = min(size, max((reach[j] - size) * SLOPE, 0.0)) if size >= 0.0 else 0.0
        cleaned = np.rint(low + (psi if r > 0.0 else -psi)) + NO_SIGN
        gross = found[1, place] - cleaned
        for k in range(sums.shape[1]):
            sums[j, k] -= gross * U[i, k]
        found[2, place] = cleaned


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
    count_small: Loop
    mark: Loop
    low_rank_entries: Loop
    amend: Loop
    put: Loop


REORDERED = {"low_rank_entries"}
"""Loops whose sums the compiler may take in any order."""


@lru_cache(maxsize=1)
def compiled_loops() -> CompiledLoops:
    """The loops."""
    compile_one = compiler()
    assert compile_one is not None  # this module could not have been imported
    loops = {field.name: globals()[field.name] for field in fields(CompiledLoops)}
    freedoms = {name: RELAXED if name in REORDERED else FUSED for name in loops}
    return CompiledLoops(**{name: compile_one(loop, freedoms[name]) for name, loop in loops.items()})


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

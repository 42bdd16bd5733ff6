"""The elementwise and sparse parts of a local pass as plain loops. `compiled_loops` compiles them.

Each has a numpy twin in `numpy_loops`, which states the same in a line or two and serves where there is no compiler.
Selects instead of branches in the inner loops let the compiler make vector code of them; NaN fails every comparison, so
that a missing entry has no influence. M may have more columns than L; the surplus is ignored. M is in double precision
even where L is in single; an outlier beyond float32 becomes Inf there, which has no influence either.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dcfpca.rpca.kernels.numpy_loops import Directions
from dcfpca.rpca.method import FloatArray, WorkArray


def sweep(M: WorkArray, L: WorkArray, threshold: float, a: float, keep: float, relaxation: float) -> None:
    """L ← keep·L + ω ψ(M − L)."""
    number = L.dtype.type
    reach, slope, zero = number(a * threshold), number(1.0 / (a - 1.0)), number(0.0)
    kept, step = number(keep), number(relaxation)
    for i in range(L.shape[0]):
        for j in range(L.shape[1]):
            r = number(M[i, j]) - L[i, j]
            size = abs(r)
            room = (reach - size) * slope
            room = room if room > zero else zero
            psi = size if size < room else room
            L[i, j] = kept * L[i, j] + step * (psi if r > zero else -psi)


def count(
    M: WorkArray,
    L: WorkArray,
    rows: NDArray[np.intp],
    threshold: float,
    a: float,
    unit: float,
    lowest: int,
    histogram: FloatArray,
) -> tuple[float, float]:
    """(Σ(ψ/unit)², the number with |ψ(r)| ≥ |r|/2) over these rows, counting sizes into the histogram."""
    reach, slope, last, per_unit = a * threshold, 1.0 / (a - 1.0), histogram.shape[0] - 1, 1.0 / unit
    squared = kept = 0.0
    for i in rows:
        for j in range(L.shape[1]):
            size = abs(M[i, j] - L[i, j])
            if not size >= 0.0:
                continue
            psi = min(size, max((reach - size) * slope, 0.0))
            squared += (psi * per_unit) ** 2
            kept += psi >= 0.5 * size
            # The exponent as single precision stores it: what lies beyond its range lies beyond the bins too.
            exponent = (np.float32(size * per_unit).view(np.int32) >> 23) - 126
            histogram[min(max(exponent - lowest, 0), last)] += size > 0.0
    return squared, kept


def thin_product(influences: WorkArray, right: WorkArray, product: WorkArray, directions: Directions) -> None:
    """product ← influences · rightᵀ, `right` being width × columns. The number of rows is a multiple of four."""
    for i in range(0, influences.shape[0], 4):
        p0, p1, p2, p3 = influences[i], influences[i + 1], influences[i + 2], influences[i + 3]
        for k in range(len(directions)):
            v = right[k]
            a = b = c = d = influences.dtype.type(0.0)
            for j in range(influences.shape[1]):
                a += p0[j] * v[j]
                b += p1[j] * v[j]
                c += p2[j] * v[j]
                d += p3[j] * v[j]
            product[i, k], product[i + 1, k], product[i + 2, k], product[i + 3, k] = a, b, c, d


def outliers(
    M: WorkArray, L: FloatArray, threshold: float, a: float
) -> tuple[NDArray[np.int32], NDArray[np.int32], FloatArray, int, float]:
    """firm(M − L) as a sparse matrix by columns (their ends, rows, values); the number of missing entries; and Σ ψ².

    A row is compared as a whole, which gives vector code, before its few outliers are looked at one by one.
    """
    columns, slope = L.shape[1], 1.0 / (a - 1.0)
    found, ends = np.empty(L.size, np.int32), np.zeros(columns + 1, np.int32)
    flags, places = np.empty(columns, np.uint8), np.empty(columns + 1, np.int64)
    total, missing, squares = 0, 0, 0.0
    for i in range(L.shape[0]):
        for j in range(columns):
            r = M[i, j] - L[i, j]
            size = abs(r)
            flags[j] = size > threshold
            squares += r * r if size <= threshold else 0.0
            missing += not (size >= 0.0)
        beyond = 0
        for j in range(columns):  # without a branch: which entries are outliers cannot be predicted
            places[beyond] = j
            beyond += flags[j]
        for k in range(beyond):
            found[total] = i * columns + places[k]
            ends[places[k] + 1] += 1
            total += 1
    for j in range(columns):
        ends[j + 1] += ends[j]
    rows, values, next_places = np.empty(total, np.int32), np.empty(total), ends.copy()
    for k in range(total):
        i, j = found[k] // columns, found[k] % columns
        r, place = M[i, j] - L[i, j], next_places[j]
        left = max(a * threshold - abs(r), 0.0) * slope
        squares += left * left
        rows[place], values[place] = i, r - left if r > 0.0 else r + left
        next_places[j] += 1
    return ends, rows, values, missing, squares

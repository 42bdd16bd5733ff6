"""A pass over M for few directions in explicit vector instructions. Needs numba: `loop_selection` checks first.

A compiler makes vectors of plain loops only after checks that nothing overlaps, row by row, and it does not know that
the next rows of a block lie far off in memory. Here a cache line of numbers is worked on at a time, for two rows at
once, while the next two are fetched. The numpy twin of `influence_pass` in `numpy_loops` states the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dcfpca.rpca.kernels.array_types import LINE, Directions, WorkArray

PITCH = 272  # columns per strip, in whole lines; their coefficients, sums and influences fit a core's L1 cache
CONTRACT = ("contract", "nsz")  # products may be fused into sums; NaN and Inf keep their meaning
PLACE = ir.IntType(64)
FLAG = ir.IntType(32)


class Lanes:
    """Emits vector operations on the numbers of one cache line."""

    def __init__(self, builder: Any, number: Any, bytes_each: int) -> None:
        self.builder, self.number, self.bytes_each, self.many = builder, number, bytes_each, LINE // bytes_each
        self.type = ir.VectorType(number, self.many)

    @contextmanager
    def along(self, count: Any) -> Iterator[Any]:
        """Emit a loop over `count` numbers, one cache line per iteration; yields the index."""
        step = ir.Constant(PLACE, self.many)
        with cgutils.for_range_slice(self.builder, ir.Constant(PLACE, 0), count, step, intp=PLACE) as (place, _):
            yield place

    def load(self, pointer: Any, place: Any, number: Any) -> Any:
        """Load a vector from this index; numbers of another precision are converted."""
        stored = ir.VectorType(number, self.many)
        found = self.builder.load(self._at(pointer, place, stored), align=4)
        return found if number == self.number else self.builder.fptrunc(found, self.type)

    def store(self, value: Any, pointer: Any, place: Any) -> None:
        """Store a vector at this index."""
        self.builder.store(value, self._at(pointer, place, self.type), align=self.bytes_each)

    def spread(self, scalar: Any) -> Any:
        """The same number in every lane."""
        nothing = ir.Constant(self.type, ir.Undefined)
        first = self.builder.insert_element(nothing, scalar, ir.Constant(FLAG, 0))
        return self.builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(FLAG, self.many), [0] * self.many))

    def plus(self, total: Any, x: Any, y: Any) -> Any:
        """total + x·y."""
        return self.builder.fadd(total, self.builder.fmul(x, y, flags=CONTRACT), flags=CONTRACT)

    def minus(self, total: Any, x: Any, y: Any) -> Any:
        """total − x·y."""
        return self.builder.fsub(total, self.builder.fmul(x, y, flags=CONTRACT), flags=CONTRACT)

    def influence(self, r: Any, top: Any, slope: Any) -> Any:
        """ψ(r): r, but no further from zero than max(top − slope·|r|, 0). NaN fails every comparison, so ψ = 0."""
        room = self._chosen(">", self.minus(top, self._size(r), slope), ir.Constant(self.type, [0.0] * self.many))
        return self._chosen(">", self._chosen("<", r, room), self.builder.fneg(room))

    def _chosen(self, order: str, x: Any, y: Any) -> Any:
        return self.builder.select(self.builder.fcmp_ordered(order, x, y), x, y)

    def _size(self, r: Any) -> Any:
        name = f"llvm.fabs.v{self.many}f{8 * self.bytes_each}"
        return self.builder.call(_known(self.builder, ir.FunctionType(self.type, [self.type]), name), [r])

    def _at(self, pointer: Any, place: Any, vector: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(pointer, [place]), vector.as_pointer())


def fetch(builder: Any, pointer: Any, place: Any) -> None:
    """Prefetch this cache line; safe for any pointer."""
    takes = ir.FunctionType(ir.VoidType(), [pointer.type, FLAG, FLAG, FLAG])
    to_read, for_long, data = (ir.Constant(FLAG, flag) for flag in (0, 3, 1))
    flags = [to_read, for_long, data]
    builder.call(_known(builder, takes, "llvm.prefetch.p0"), [builder.gep(pointer, [place]), *flags])


def _known(builder: Any, takes: Any, name: str) -> Any:
    """The declaration of an external function with this name."""
    declare: Any = cgutils.get_or_insert_function
    return declare(builder.module, takes, name)


def _influence_pair(
    _: Any, m0: Any, m1: Any, u0: Any, u1: Any, board: Any, p0: Any, p1: Any, count: Any, ahead: Any, top: Any,
    slope: Any, directions: Any
) -> tuple[Any, Callable[..., Any]]:  # fmt: skip
    """Two rows of a strip: p ← ψ(m − Σ u·shrunk), then the sums gain p·u; `ahead` is the prefetch distance.

    The board holds the strip's coefficients direction by direction at a distance of PITCH, then the sums.
    """
    taken = types.void(m0, m1, u0, u1, board, p0, p1, count, ahead, top, slope, directions)

    def emit(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        data, work = (context.get_data_type(kind.dtype) for kind in (m0, board))
        lanes = Lanes(builder, work, board.dtype.bitwidth // 8)
        kinds = zip(signature.args[:7], given, strict=False)
        rows = [context.make_array(kind)(context, builder, array).data for kind, array in kinds]
        left = [[lanes.spread(_entry(builder, u, k)) for k in range(len(directions))] for u in rows[2:4]]
        _emit_influences(lanes, rows, left, given[7:11], data)
        _emit_sums(lanes, rows, left, given[7])
        return context.get_dummy_value()

    return taken, emit


def _emit_influences(
    lanes: Lanes, rows: Sequence[Any], left: Sequence[Sequence[Any]], given: Sequence[Any], data: Any
) -> None:
    (m0, m1, _, _, board, p0, p1), builder = rows, lanes.builder
    count, ahead, top, slope = *given[:2], *(lanes.spread(one) for one in given[2:])
    with lanes.along(count) as j:
        r0, r1 = lanes.load(m0, j, data), lanes.load(m1, j, data)
        for row in (m0, m1):
            fetch(builder, row, builder.add(j, ahead))
        for k, (u0, u1) in enumerate(zip(*left, strict=True)):
            s = lanes.load(board, builder.add(j, ir.Constant(PLACE, k * PITCH)), lanes.number)
            r0, r1 = lanes.minus(r0, u0, s), lanes.minus(r1, u1, s)
        lanes.store(lanes.influence(r0, top, slope), p0, j)
        lanes.store(lanes.influence(r1, top, slope), p1, j)


def _emit_sums(lanes: Lanes, rows: Sequence[Any], left: Sequence[Sequence[Any]], count: Any) -> None:
    (*_, board, p0, p1), builder, width = rows, lanes.builder, len(left[0])
    with lanes.along(count) as j:
        y0, y1 = lanes.load(p0, j, lanes.number), lanes.load(p1, j, lanes.number)
        for k, (u0, u1) in enumerate(zip(*left, strict=True)):
            place = builder.add(j, ir.Constant(PLACE, (width + k) * PITCH))
            total = lanes.plus(lanes.load(board, place, lanes.number), y0, u0)
            lanes.store(lanes.plus(total, y1, u1), board, place)


def _entry(builder: Any, row: Any, k: int) -> Any:
    return builder.load(builder.gep(row, [ir.Constant(PLACE, k)]))


influence_pair: Any = intrinsic(_influence_pair)


def influence_pass(
    M: WorkArray,
    U: WorkArray,
    shrunk: WorkArray,
    threshold: float,
    a: float,
    influences: WorkArray,
    gained: WorkArray,
    directions: Directions,
) -> None:
    """influences ← ψ(M − U·shrunkᵀ), and gained ← influencesᵀ·U, in one pass over M that never forms U·shrunkᵀ.

    A row of `influences` is a whole number of cache lines. With fewer rows than M, two rows are overwritten again and
    again; otherwise the number of rows is even.
    """
    rows, columns, width, many = M.shape[0], shrunk.shape[0], len(directions), LINE // U.itemsize
    number, kept, whole = U.dtype.type, influences.shape[0] >= rows, columns - columns % many
    slope, top = number(1.0 / (a - 1.0)), number(a * threshold / (a - 1.0))
    left, board = np.zeros((rows + 1, width), U.dtype), np.zeros(2 * width * PITCH, U.dtype)
    rest = np.full((rows if whole < columns else 0, many), np.nan, M.dtype)  # the last columns, made a whole line
    for i in range(rows):
        for k in range(width):
            left[i, k] = U[i, k]
        for j in range(columns - whole):
            rest[i, j] = M[i, whole + j]
    first = 0
    while first < columns:
        data, begin, count = (M, first, min(PITCH, whole - first)) if first < whole else (rest, 0, many)
        last = min(first + count, columns)
        for k in range(width):
            for j in range(count):
                board[k * PITCH + j] = shrunk[first + j, k] if first + j < last else number(0.0)
                board[(width + k) * PITCH + j] = number(0.0)
        for i in range(0, rows, 2):
            m0, m1, place = data[i, begin:], data[min(i + 1, rows - 1), begin:], i if kept else 0
            p0, p1, ahead = influences[place, first:], influences[place + 1, first:], 2 * data.shape[1]
            influence_pair(m0, m1, left[i], left[i + 1], board, p0, p1, count, ahead, top, slope, directions)
        for j in range(last - first):
            for k in range(width):
                gained[first + j, k] = board[(width + k) * PITCH + j]
        first += count

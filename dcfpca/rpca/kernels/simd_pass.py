"""A pass over M for few directions in explicit vector instructions. Needs numba: `compiled_loops` checks first.

A compiler vectorizes plain loops only along a row, so that coefficients and sums go through memory for every entry. Nor
does it know that the next rows of a block lie far apart in memory. Here a strip of one cache line of columns is worked
on for a few rows at a time: its coefficients and sums stay in registers, while the same strip of the next rows is
fetched. The numpy twin of `influence_pass` in `numpy_loops` states the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dcfpca.rpca.column_blocks import LINE
from dcfpca.rpca.kernels.numpy_loops import Directions
from dcfpca.rpca.method import WorkArray

ROWS_AT_A_TIME = 16  # of all strips, so that their data comes to the L1 cache line after line
CONTRACT = ("contract", "nsz")  # products may be fused into sums; NaN and Inf keep their meaning
PLACE = ir.IntType(64)
FLAG = ir.IntType(32)


class Lanes:
    """Emits vector operations on the numbers of one cache line."""

    def __init__(self, builder: Any, number: Any, bytes_each: int) -> None:
        self.builder, self.number, self.bytes_each, self.many = builder, number, bytes_each, LINE // bytes_each
        self.type = ir.VectorType(number, self.many)

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


def _influence_strip(
    _: Any, m: Any, stride: Any, u: Any, rows: Any, board: Any, p: Any, pitch: Any, top: Any, slope: Any,
    directions: Any
) -> tuple[Any, Callable[..., Any]]:  # fmt: skip
    """Some rows of a strip: p ← ψ(m − Σ u·shrunk), and the sums gain p·u.

    Rows of m and p are `stride` and `pitch` apart. The board holds the strip's coefficients direction by direction,
    then its sums.
    """
    taken = types.void(m, stride, u, rows, board, p, pitch, top, slope, directions)

    def emit(context: Any, builder: Any, signature: Any, given: Sequence[Any]) -> Any:
        data, work = (context.get_data_type(kind.dtype) for kind in (m, board))
        lanes, width = Lanes(builder, work, board.dtype.bitwidth // 8), len(directions)
        arrays = [context.make_array(signature.args[k])(context, builder, given[k]).data for k in (0, 2, 4, 5)]
        places = [ir.Constant(PLACE, k * lanes.many) for k in range(2 * width)]
        numbers = [lanes.load(arrays[2], place, work) for place in places]
        keep: Any = cgutils.alloca_once_value  # which the compiler then keeps in registers
        sums = [keep(builder, total) for total in numbers[width:]]
        limits = [lanes.spread(one) for one in given[7:9]]
        with cgutils.for_range(builder, given[3], intp=PLACE) as loop:
            _emit_row(
                lanes, (arrays[0], arrays[1], arrays[3]), loop.index, given, (numbers[:width], sums), limits, data
            )
        for place, total in zip(places[width:], sums, strict=True):
            lanes.store(builder.load(total), arrays[2], place)
        return context.get_dummy_value()

    return taken, emit


def _emit_row(
    lanes: Lanes, arrays: Sequence[Any], i: Any, given: Sequence[Any], strip: Sequence[Sequence[Any]],
    limits: Sequence[Any], data: Any
) -> None:  # fmt: skip
    (m, u, p), builder, (shrunk, sums) = arrays, lanes.builder, strip
    here, ahead = builder.mul(i, given[1]), builder.mul(given[1], ir.Constant(PLACE, ROWS_AT_A_TIME))
    r, first = lanes.load(m, here, data), builder.mul(i, ir.Constant(PLACE, len(shrunk)))
    for line in range(1 if data == lanes.number else 2):  # a strip of doubles is two lines where work is in single
        fetch(builder, m, builder.add(builder.add(here, ahead), ir.Constant(PLACE, line * lanes.many // 2)))
    left = [lanes.spread(_entry(builder, u, builder.add(first, ir.Constant(PLACE, k)))) for k in range(len(shrunk))]
    for weight, own in zip(left, shrunk, strict=True):
        r = lanes.minus(r, weight, own)
    psi = lanes.influence(r, *limits)
    lanes.store(psi, p, builder.mul(i, given[6]))
    for weight, total in zip(left, sums, strict=True):
        builder.store(lanes.plus(builder.load(total), psi, weight), total)


def _entry(builder: Any, array: Any, place: Any) -> Any:
    return builder.load(builder.gep(array, [place]))


influence_strip: Any = intrinsic(_influence_strip)


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

    A row of `influences` is a whole number of cache lines. With fewer rows than M, its first row is overwritten again
    and again.
    """
    rows, columns, width, many = M.shape[0], shrunk.shape[0], len(directions), LINE // U.itemsize
    number, whole, strips = U.dtype.type, columns // many, -(-columns // many)
    slope, top = number(1.0 / (a - 1.0)), number(a * threshold / (a - 1.0))
    pitch = influences.shape[1] if influences.shape[0] >= rows else 0
    left, board = np.ascontiguousarray(U), np.zeros((strips, 2 * width * many), U.dtype)
    for j in range(columns):
        for k in range(width):
            board[j // many, k * many + j % many] = shrunk[j, k]
    rest = np.full((rows if whole < strips else 0, many), np.nan, M.dtype)  # the last columns, made a whole strip
    for i in range(rest.shape[0]):
        for j in range(columns - whole * many):
            rest[i, j] = M[i, whole * many + j]
    for i in range(0, rows, ROWS_AT_A_TIME):
        count, place = min(ROWS_AT_A_TIME, rows - i), i if pitch else 0
        for t in range(strips):
            data, begin = (M, t * many) if t < whole else (rest, 0)
            p = influences[place, t * many :]
            influence_strip(data[i, begin:], data.shape[1], left[i], count, board[t], p, pitch, top, slope, directions)
    for j in range(columns):
        for k in range(width):
            gained[j, k] = board[j // many, (width + k) * many + j % many]

"""A site's matrix as column blocks: columns in arrays, block ranges, the split over sites, blocks as compiled loops
read them, and the check of entries where data comes in, which the methods rely on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from dcfpca.errors import BadInput
from dcfpca.rpca.method import Columns, FloatArray

LINE = 64  # bytes of a cache line
LINE_NUMBERS = LINE // 4  # numbers in a cache line, in single precision
BLOCK_BYTES = 1 << 20  # A block of columns this large, its residual and its factors stay in a core's cache.


@dataclass(frozen=True, slots=True, eq=False)
class ArrayColumns:
    """An m × n_i array or memory map as `Columns`. Any real dtype; blocks are handed out as float64."""

    array: NDArray[Any]
    shape: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        if self.array.ndim != 2:
            raise BadInput(
                f"The matrix has {self.array.ndim} dimension(s), not two.", "Give an array of rows × columns."
            )
        if self.array.dtype.kind not in "fiub":
            raise BadInput(f"The matrix holds {self.array.dtype}, not real numbers.", "Store it as float64 or float32.")
        object.__setattr__(self, "shape", self.array.shape)

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1; a view where the array is float64 already, else a converted copy."""
        return np.asarray(self.array[:, start:stop], dtype=np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnRange:
    """Columns start … stop − 1 of others."""

    columns: Columns
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n_i)."""
        return self.columns.shape[0], self.stop - self.start

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1 of the range."""
        return self.columns.read(self.start + start, self.start + stop)


@dataclass(slots=True, eq=False)
class ScaledColumns:
    """(x − centre)/scale of a site's columns. Centre and scale come with every broadcast."""

    columns: Columns
    centre: FloatArray
    scale: FloatArray
    shape: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.shape = self.columns.shape

    def read(self, start: int, stop: int) -> FloatArray:
        """Columns start … stop − 1, centred and scaled."""
        block = self.columns.read(start, stop) - self.centre[:, None]
        block /= self.scale[:, None]
        return block


def units_of(columns: Columns) -> FloatArray:
    """Centre and scale (2 × m) of columns that are shown in units of their own."""
    if isinstance(columns, ScaledColumns):
        return np.stack([columns.centre, columns.scale])
    return np.stack([np.zeros(columns.shape[0]), np.ones(columns.shape[0])])


def blocks(columns: Columns, block_bytes: int = BLOCK_BYTES) -> list[tuple[int, int]]:
    """Cut a site's columns into ranges (start, stop) of about one width, whose float64 block has at most about
    `block_bytes`."""
    rows, count = columns.shape
    widest = block_width(rows, block_bytes)
    width = min(widest, _whole_lines(-(-count // max(-(-count // widest), 1))))  # no narrow one is left at the end
    return [(start, min(start + width, count)) for start in range(0, count, width)]


def grouped(cuts: list[tuple[int, int]], columns: int) -> list[list[tuple[int, int]]]:
    """The ranges in groups of neighbours that have at most this many columns together, or are one range."""
    each = max(1, columns // max(cuts[0][1] - cuts[0][0], 1)) if cuts else 1
    return [cuts[first : first + each] for first in range(0, len(cuts), each)]


def block_width(rows: int, block_bytes: int = BLOCK_BYTES) -> int:
    """Columns per block: whole cache lines where there are many, but not a multiple of eight lines, because
    power-of-two row strides cause cache-set conflicts."""
    width = max(1, block_bytes // (8 * max(rows, 1)))
    lines = width // LINE_NUMBERS
    return LINE_NUMBERS * (lines - (lines % 8 == 0)) if lines else width


def _whole_lines(width: int) -> int:
    """This many columns, rounded up to whole cache lines by the rule of `block_width`."""
    lines = -(-width // LINE_NUMBERS)
    return LINE_NUMBERS * (lines + (lines % 8 == 0))


def split(matrix: NDArray[Any], counts: tuple[int, ...]) -> list[ArrayColumns]:
    """Split the columns of one matrix over sites, `counts[i]` consecutive columns to site i."""
    if sum(counts) != matrix.shape[1] or min(counts, default=0) < 1:
        raise BadInput(
            f"Counts {counts} do not add up to {matrix.shape[1]} columns.", "Give positive counts that add up to them."
        )
    ends = np.cumsum(counts)
    return [ArrayColumns(matrix[:, end - count : end]) for count, end in zip(counts, ends, strict=True)]


def equal_counts(columns: int, sites: int) -> tuple[int, ...]:
    """Column counts of `sites` sites that differ by at most one."""
    if not 1 <= sites <= columns:
        raise BadInput(f"{columns} columns cannot be split over {sites} sites.", "Give each site at least one.")
    least, more = divmod(columns, sites)
    return tuple(least + (index < more) for index in range(sites))


LARGEST = 1e140  # squares and their sums stay finite
SMALLEST = 1e-140  # squares do not vanish
CHECKED_BYTES = 1 << 24  # a block of columns that is checked at a time


def check_entries(columns: Columns) -> None:
    """Refuse an empty matrix, infinite entries, and magnitudes that arithmetic cannot square; NaN means unobserved."""
    rows, count = columns.shape
    if rows == 0 or count == 0:
        raise BadInput(
            f"The matrix is {rows} × {count}: there is nothing in it.", "Check the file and its orientation."
        )
    largest = 0.0
    for start, stop in blocks(columns, CHECKED_BYTES):
        block = columns.read(start, stop)
        if _is_ordinary(block):
            continue
        _refuse_infinity(block, start)
        largest = max(largest, largest_magnitude(block))
    check_magnitude(largest)


def _is_ordinary(block: FloatArray) -> bool:
    """True if the sum of squares alone shows that nothing is missing or infinite and all sizes are allowed.

    It may be False for data that is as good."""
    squares = float(np.vdot(block, block) if block.flags.c_contiguous else np.einsum("ij,ij->", block, block))
    return SMALLEST**2 * block.size <= squares <= LARGEST**2


def largest_magnitude(block: FloatArray) -> float:
    """The largest absolute value of the observed entries; 0 where nothing is observed."""
    return float(np.fmax.reduce(np.abs(block), axis=None, initial=0.0))


def check_magnitude(largest: float, what: str = "The matrix") -> None:
    """Refuse data, named in the message, whose largest absolute value arithmetic cannot square."""
    if largest > LARGEST or 0.0 < largest < SMALLEST:
        raise BadInput(
            f"{what} has {largest:.1e} as its largest entry, outside {SMALLEST:.0e} … {LARGEST:.0e}.",
            "Express the data in another unit; results scale with it.",
        )


def _refuse_infinity(block: FloatArray, start: int) -> None:
    infinite = np.isinf(block)
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise BadInput(
            f"{np.count_nonzero(infinite)} entry(ies) are infinite, the first in row {row}, column {start + column}.",
            "Use NaN (or leave the cell empty) for a value that was not observed.",
        )


def readable_by_loops(M: FloatArray) -> FloatArray:
    """M as the loops read it, copied where its strides forbid it; may have more columns, which must not be read."""
    there = row_strided_view(M)
    return read_only(np.ascontiguousarray(M)) if there is None else there


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


def read_only(M: FloatArray) -> FloatArray:
    """A view that may not be written to: data comes to the loops as such, so that they are compiled for one kind."""
    view = M.view()
    view.flags.writeable = False
    return view

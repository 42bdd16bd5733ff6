"""Checks a site's matrix. Called where data comes in (a participant's `measure`, `simulate`, the estimator);
the methods trust it afterwards."""

from __future__ import annotations

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.column_blocks import blocks
from dcfpca.rpca.method import Columns, FloatArray

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

"""What a site's matrix may hold. Data readers call `check_entries` once, at the door; the methods then trust it."""

from __future__ import annotations

import numpy as np

from dcfpca.errors import BadInput
from dcfpca.rpca.columns import blocks
from dcfpca.rpca.method import Columns, FloatArray

LARGEST = 1e140  # squares and their sums stay finite
SMALLEST = 1e-140  # squares do not vanish


def check_entries(columns: Columns) -> None:
    """Refuse Inf and sizes that arithmetic cannot square; NaN means unobserved and is welcome."""
    rows, count = columns.shape
    if rows == 0 or count == 0:
        raise BadInput(
            f"The matrix is {rows} × {count}: there is nothing in it.", "Check the file and its orientation."
        )
    largest = 0.0
    for start, stop in blocks(columns):
        largest = max(largest, _largest_size(columns.read(start, stop), start))
    if largest > LARGEST or 0.0 < largest < SMALLEST:
        raise BadInput(
            f"The largest entry is {largest:.1e}, outside {SMALLEST:.0e} … {LARGEST:.0e}.",
            "Express the data in another unit; results scale with it.",
        )


def _largest_size(block: FloatArray, start: int) -> float:
    infinite = np.isinf(block)
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise BadInput(
            f"{np.count_nonzero(infinite)} entry(ies) are infinite, the first in row {row}, column {start + column}.",
            "Use NaN (or leave the cell empty) for a value that was not observed.",
        )
    return float(np.nanmax(np.abs(block), initial=0.0)) if not np.isnan(block).all() else 0.0

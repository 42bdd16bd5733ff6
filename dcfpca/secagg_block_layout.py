"""An update's layout as blocks of the secure sum, each of numbers of one size."""

from __future__ import annotations

from dcfpca.rpca.method import Layout
from dcfpca.secagg.fixed_cohort import Block, BlockLayout
from dcfpca.secagg.fixed_cohort.block_layout import BOUNDED

COUNT_EXPONENT = {64: 40, 32: 20}
"""Counts of columns and entries are whole numbers, exact under any exponent that leaves steps of one or less."""
SCALE_EXPONENT = {64: 12, 32: 8}
"""Sums of scales have the unit of the data and are wanted to many digits; larger ones take a lift."""
TENSOR_EXPONENT = {64: 12, 32: 4}
"""Tensors with scalars beside them are sent in units of order one."""
SHARE_EXPONENT = {64: 8, 32: 4}
"""Those scalars are shares and figures of order one."""


def block_layout(layout: Layout, precision: int = 64) -> BlockLayout:
    """The blocks of an update of this layout in sums of so many bits; empty ones are left out.

    Scalars beside a tensor are one block: a bin of a histogram that was empty for rounds may fill in the next one, and
    must find room. A tensor without scalars holds counts, and so do scalars without a tensor, except sums of
    scales and errors.
    """
    if layout.exponent is not None:
        return BlockLayout((Block(BOUNDED, layout.size, layout.exponent),))
    size, names = layout.rows * layout.columns, layout.scalars
    if size and names:
        blocks = (
            Block("tensor", size, TENSOR_EXPONENT[precision]),
            Block("scalars", len(names), SHARE_EXPONENT[precision]),
        )
        return BlockLayout(blocks)
    tensor = Block("tensor", size, COUNT_EXPONENT[precision])
    scalars = (Block(name, 1, _opening_exponent(name, precision)) for name in names)
    return BlockLayout(tuple(block for block in (tensor, *scalars) if block.size))


def _opening_exponent(name: str, precision: int) -> int:
    if name.startswith("error_"):
        return SHARE_EXPONENT[precision]
    return (SCALE_EXPONENT if name.endswith("_scale") else COUNT_EXPONENT)[precision]

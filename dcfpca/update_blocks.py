"""An update's layout as blocks of the secure sum: the tensor, and each scalar by itself."""

from __future__ import annotations

from dcfpca.rpca.method import Layout
from dcfpca.secagg.fixed_cohort import Block, BlockLayout

TENSOR_EXPONENT = {64: 16, 32: 8}
"""Tensors are sent in units of order one, or count columns; what is larger takes a lift."""
SHARE_EXPONENT = {64: 8, 32: 4}
"""Scalars beside a tensor are shares and figures of order one, wanted to many digits."""
COUNT_EXPONENT = {64: 24, 32: 14}
"""Scalars of an opening exchange, which has no tensor: counts of columns and entries, and sums of scales."""


def block_layout(layout: Layout, precision: int = 64) -> BlockLayout:
    """The blocks of an update of this layout in sums of so many bits; empty ones are left out."""
    size = layout.rows * layout.columns
    exponent = (SHARE_EXPONENT if size else COUNT_EXPONENT)[precision]
    tensor = Block("tensor", size, TENSOR_EXPONENT[precision])
    scalars = (Block(name, 1, exponent) for name in layout.scalars)
    return BlockLayout(tuple(block for block in (tensor, *scalars) if block.size))

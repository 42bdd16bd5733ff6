"""An update's layout as blocks of the secure sum: the tensor, and each scalar by itself."""

from __future__ import annotations

from dcfpca.rpca.method import Layout
from dcfpca.secagg.fixed_cohort import Block, BlockLayout

TENSOR_EXPONENT = 16
"""Tensors are sent in units of order one; what is larger takes a lift."""
SCALAR_EXPONENT = 40
"""Scalars may be counts of entries; with 64 bits they are exact to 2^-12 and better in the first round."""


def block_layout(layout: Layout) -> BlockLayout:
    """The blocks of an update of this layout; empty ones are left out."""
    tensor = Block("tensor", layout.rows * layout.columns, TENSOR_EXPONENT)
    scalars = (Block(name, 1, SCALAR_EXPONENT) for name in layout.scalars)
    return BlockLayout(tuple(block for block in (tensor, *scalars) if block.size))

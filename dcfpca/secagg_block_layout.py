"""An update's layout as blocks of the secure sum: the tensor, and each scalar by itself."""

from __future__ import annotations

from dcfpca.rpca.method import Layout
from dcfpca.secagg.fixed_cohort import Block, BlockLayout

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

    A tensor without scalars holds counts, and so do scalars without a tensor, except for sums of scales and errors.
    """
    size = layout.rows * layout.columns
    tensor = Block("tensor", size, (TENSOR_EXPONENT if layout.scalars else COUNT_EXPONENT)[precision])
    scalars = (Block(name, 1, _scalar_exponent(name, size > 0, precision)) for name in layout.scalars)
    return BlockLayout(tuple(block for block in (tensor, *scalars) if block.size))


def _scalar_exponent(name: str, beside_tensor: bool, precision: int) -> int:
    if name.endswith("_scale"):
        return SCALE_EXPONENT[precision]
    shares = beside_tensor or name.startswith("error_")
    return (SHARE_EXPONENT if shares else COUNT_EXPONENT)[precision]

"""Has the loops of the extra `fast` ready before a round needs them, and says so in the log.

Without numba there are none, and nothing is done. Every number of directions up to THIN_WIDTH has loops of its own.
"""

from __future__ import annotations

import time
from functools import partial

from dcfpca.logs import log
from dcfpca.rpca.kernels.loop_loading import compiled_here, load_loops, load_thin_loops
from dcfpca.rpca.kernels.loop_selection import compiled_loops
from dcfpca.rpca.kernels.step_parameters import THIN_WIDTH
from dcfpca.rpca.method import Columns
from dcfpca.rpca.refinement.limits import automatic_bound
from participant.engine.thread_engine import Engine


async def prepare_loops(engine: Engine, columns: Columns) -> None:
    """Load or compile the loops that every run needs, and those of the bound that a run without one has here."""
    if await engine.run(compiled_loops) is None:
        return
    began = time.monotonic()
    bound = automatic_bound(columns.shape[0])
    for writeable in await engine.run(partial(_kinds, columns)):
        await engine.run(partial(load_loops, [bound], writeable=writeable))
    log("loops_loaded", seconds=round(time.monotonic() - began, 2), compiled=compiled_here())


async def prepare_widths(engine: Engine, columns: Columns, widest: int) -> None:
    """Load or compile the loops of this many directions, then of fewer, to which a run may narrow."""
    if await engine.run(compiled_loops) is None:
        return
    began, before = time.monotonic(), compiled_here()
    kinds = await engine.run(partial(_kinds, columns))
    for width in range(min(widest, THIN_WIDTH), 0, -1):
        for writeable in kinds:
            await engine.run(partial(load_thin_loops, width, writeable=writeable))
    if compiled := compiled_here() - before:
        log("loops_compiled", seconds=round(time.monotonic() - began, 2), compiled=compiled)


def _kinds(columns: Columns) -> list[bool]:
    """Whether blocks of the data may be written to: scaled ones always may, those of a mapped file may not."""
    return sorted({True, bool(columns.read(0, 1).flags.writeable)}, reverse=True)

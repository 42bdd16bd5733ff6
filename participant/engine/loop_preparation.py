"""Has the loops of the extra `fast` ready before a round needs them, and says so in the log.

Without numba there are none, and nothing is done. Every number of directions up to THIN_WIDTH has loops of its own.
"""

from __future__ import annotations

import time
from functools import partial

from dcfpca.logs import log
from dcfpca.rpca.kernels.loop_loading import await_thin_loops, compiled_here, load_loops, load_thin_loops
from dcfpca.rpca.kernels.loop_selection import compiled_loops
from dcfpca.rpca.kernels.step_parameters import THIN_WIDTH
from dcfpca.rpca.private.cleaning import load_cleaning_loops
from dcfpca.rpca.refinement.hidden_entry_loops import load_hidden_entry_loops
from dcfpca.rpca.refinement.limits import automatic_bound
from participant.engine.thread_engine import Engine


async def prepare_loops(engine: Engine, rows: int) -> None:
    """Load or compile the loops that every run needs, and those of the bound that a run without one has here."""
    if await engine.run(compiled_loops) is None:
        return
    began = time.monotonic()
    bound = automatic_bound(rows)
    await engine.run(partial(load_loops, [bound]))
    await engine.run(load_hidden_entry_loops)
    log("loops_loaded", seconds=round(time.monotonic() - began, 2), compiled=compiled_here())


async def prepare_private_loops(engine: Engine) -> None:
    """Load or compile the loops of private runs."""
    await engine.run(load_cleaning_loops)


async def prepare_widths(engine: Engine, widest: int) -> None:
    """Load or compile the loops of this many directions, then of fewer, to which a run may narrow. Rounds do without
    those that are not there yet."""
    if await engine.run(compiled_loops) is None:
        return
    began, before = time.monotonic(), compiled_here()
    widths = range(min(widest, THIN_WIDTH), 0, -1)
    await_thin_loops(widths)
    for width in widths:
        await engine.run(partial(load_thin_loops, width))
    if compiled := compiled_here() - before:
        log("loops_compiled", seconds=round(time.monotonic() - began, 2), compiled=compiled)

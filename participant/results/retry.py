"""Writing results until it succeeds: a full disk costs a site time, not its result."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dcfpca.logs import log

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 60.0


async def until_written(run_id: str, write: Callable[[], Awaitable[None]]) -> None:
    """Write the results of a run, again and again while the operating system refuses; each new reason is logged."""
    pause, said = FIRST_PAUSE, ""
    while True:
        try:
            return await write()
        except OSError as error:
            if str(error) != said:
                hint = "free space at [results] dir or correct its permissions; it is tried again"
                log("results_not_written", level="error", run=run_id, reason=str(error), hint=hint)
            said = str(error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)

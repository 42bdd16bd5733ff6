"""Deleting runs that ended long ago, by the number and the days that the configuration keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aggregator.config import StoreSection
from aggregator.run.state import Run
from aggregator.run_registry import RunRegistry
from dcfpca.errors import DcfpcaError
from dcfpca.logs import log

CHECK_SECONDS = 600.0
DAY_SECONDS = 86400.0


def expired(runs: Iterable[Run], keep: StoreSection, now: float) -> list[str]:
    """The runs to delete: those that are over and beyond the newest `keep_runs`, or ended `keep_days` ago."""
    over = sorted((run for run in runs if run.status.over), key=lambda run: run.ended_at, reverse=True)
    beyond = over[keep.keep_runs :] if keep.keep_runs else []
    oldest = now - keep.keep_days * DAY_SECONDS
    old = [run for run in over if keep.keep_days and run.ended_at < oldest]
    return sorted({run.run_id for run in (*beyond, *old)})


async def delete_expired(registry: RunRegistry, keep: StoreSection) -> None:
    """Delete what has expired, each with a line in the audit log."""
    runs = [runner.run for runner in registry.runners.values()]
    for run_id in expired(runs, keep, registry.store.now()):
        await registry.delete(run_id, "", "beyond [store] keep_runs or keep_days")


async def watch_retention(registry: RunRegistry, keep: StoreSection) -> None:
    """Delete expired runs now and then, for ever; a store that cannot be written is tried again later."""
    while keep.keep_runs or keep.keep_days:
        try:
            await delete_expired(registry, keep)
        except DcfpcaError as error:
            log("retention_failed", level="warning", reason=str(error), hint=error.hint or None)
        await asyncio.sleep(CHECK_SECONDS)

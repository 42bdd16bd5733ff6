"""What the service does now and then: tell its health, delete expired runs, cut calls of expired certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import UTC, datetime
from typing import Protocol

from aggregator.config import StoreSection
from aggregator.rpc.server import Server
from aggregator.run.state import Run
from aggregator.run_registry import RunRegistry
from aggregator.store.thread import StoreThread
from aggregator.trust import CHECK_SECONDS, Trust
from dcfpca.errors import DcfpcaError
from dcfpca.logs import log

HEALTH_SECONDS = 2.0
RETENTION_SECONDS = 600.0
DAY_SECONDS = 86400.0


class TellHealth(Protocol):
    """Sets the status that health probes receive."""

    def __call__(self, *, serving: bool) -> Awaitable[None]:
        """Tell probes from now on whether the service can do its work."""


async def watch_health(tell: TellHealth, store: StoreThread, trust: Trust) -> None:
    """Check every HEALTH_SECONDS, for ever, and tell probes when the result changes."""
    serving = True
    while True:
        await asyncio.sleep(HEALTH_SECONDS)
        reason = await _problem(store, trust)
        if (reason is None) != serving:
            serving = reason is None
            log("health_changed", level="info" if serving else "error", serving=serving, reason=reason)
            await tell(serving=serving)


async def _problem(store: StoreThread, trust: Trust) -> str | None:
    if trust.credentials.not_after < datetime.now(UTC):
        return "the aggregator's certificate has expired"
    try:
        await store.do(lambda opened: opened.check_writable())
    except DcfpcaError as error:
        return str(error)
    return None


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
        await asyncio.sleep(RETENTION_SECONDS)


async def cut_expired(server: Server) -> None:
    """Cut the calls of certificates that expired since the call began, for ever."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        now = datetime.now(UTC)
        server.calls.cut(lambda who, now=now: who.certificate.not_valid_after_utc > now)  # type: ignore[misc]

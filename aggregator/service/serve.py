"""The running service: builds its parts, stops them in order, and looks after them meanwhile.

Now and then it tells its health, deletes expired runs and cuts the calls of expired certificates.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from cryptography.hazmat.primitives.serialization import Encoding

from aggregator.config import Config, StoreSection
from aggregator.dashboard.http_routes import Dashboard
from aggregator.ended_runs import EndedRun
from aggregator.participant_directory import ParticipantDirectory
from aggregator.rpc.server import Server
from aggregator.run.state import Run
from aggregator.run_registry import RunRegistry
from aggregator.service.standby import LeaseKeeper, lease_for, stand_by
from aggregator.store import participants
from aggregator.store.audit import Signer, check_consortium
from aggregator.store.database import StoreFailed
from aggregator.store.postgresql import PostgresDatabase, prepare
from aggregator.store.store import Store
from aggregator.store.thread import StoreThread
from aggregator.telemetry import Telemetry
from aggregator.trust import CHECK_SECONDS, Trust
from dcfpca import logs
from dcfpca.errors import DcfpcaError
from dcfpca.freed_memory import collect_garbage_rarely, keep_freed_memory
from dcfpca.pki.credential_files import Credentials
from dcfpca.pki.keys import sign
from dcfpca.version import __version__
from dcfpca.web_server import WebServer, serve_beside

T = TypeVar("T")

WORKSPACE_BYTES = 16 << 20
"""Arrays from this size on are mapped for each use: the workspace of a step is twice the largest message."""

HEALTH_SECONDS = 2.0
RETENTION_SECONDS = 600.0
DAY_SECONDS = 86400.0
RETRY_SECONDS = 1.0
"""How often a start that found the disk full, or the database silent, is tried again."""


def run_service(config: Config) -> None:
    """Serve until told to stop (SIGTERM or Ctrl-C)."""
    keep_freed_memory(WORKSPACE_BYTES)
    collect_garbage_rarely()
    asyncio.run(_serve(config))


async def _serve(config: Config) -> None:
    stopping = _stop_signal()
    url = config.store.database_url()
    if not url:
        store = await _once_there_is_space(lambda: asyncio.to_thread(Store, config.store.path))
        return await _serve_store(config, store, stopping)
    trust = Trust(config.server, frozenset())
    await _once_there_is_space(lambda: asyncio.to_thread(prepare, url))
    lease = lease_for(config, trust)
    config = await stand_by(config, lease, trust, stopping, partial(_announce, "standing_by"))
    if stopping.is_set():
        return lease.close()
    keeper = LeaseKeeper(lease)
    try:
        database = await _once_there_is_space(lambda: asyncio.to_thread(PostgresDatabase, url, lease.term))
        await _serve_store(config, Store(config.store.path, database), stopping, lambda: lease.is_held)
    finally:
        await asyncio.to_thread(keeper.release)
    return None


async def _serve_store(
    config: Config, store: Store, stopping: asyncio.Event, holds_lease: Callable[[], bool] = lambda: True
) -> None:
    trust = Trust(config.server, participants.revoked(store.connection))
    mine = trust.credentials
    check_consortium(store.connection, mine.identity.consortium)
    thread = StoreThread(store, _signer(mine), str(mine.identity))
    registry = RunRegistry(thread, ParticipantDirectory(thread), Telemetry())
    server = Server(config, registry, trust, holds_lease)
    await registry.start()
    await server.start()
    await _once_there_is_space(lambda: thread.record("aggregator_started", version=__version__))
    pages = await _serve_pages(config, registry, trust)
    _announce("serving", config, server.port)
    watchers = [
        asyncio.create_task(trust.watch(lambda: _certificates_changed(registry, server, trust))),
        asyncio.create_task(cut_expired(server)),
        asyncio.create_task(watch_health(server, thread, trust)),
        asyncio.create_task(watch_retention(registry, config.store)),
    ]
    await stopping.wait()
    await _stop(config, server, registry, watchers, pages)


async def _stop(
    config: Config,
    server: Server,
    registry: RunRegistry,
    watchers: Sequence[asyncio.Task[None]],
    pages: Sequence[WebServer],
) -> None:
    """Stop the parts in the order in which they depend on each other."""
    logs.log("draining")
    for watcher in watchers:
        watcher.cancel()
    for page in pages:
        await page.stop()
    registry.drain()
    await server.stop()
    await registry.stop(config.server.drain_seconds)
    with suppress(StoreFailed):  # a full disk must not keep the service from stopping
        await registry.store.record("aggregator_stopped")
    registry.store.close()
    logs.log("stopped")


async def _once_there_is_space(work: Callable[[], Awaitable[T]]) -> T:
    """The result of work on the store, tried again for as long as the disk is full or the database does not answer."""
    logged = False
    while True:
        try:
            return await work()
        except StoreFailed as error:
            if not logged:
                logs.log("start_held_up", level="error", reason=str(error), hint=error.hint)
            logged = True
        await asyncio.sleep(RETRY_SECONDS)


async def _serve_pages(config: Config, registry: RunRegistry, trust: Trust) -> list[WebServer]:
    """Serve metrics and dashboard; a failure of either does not stop the service."""
    registry.telemetry.watch(registry, trust)
    pages = [
        await serve_beside("metrics", config.telemetry.metrics, registry.telemetry.page),
        await serve_beside(
            "dashboard", config.dashboard.listen, Dashboard(registry, trust).page, config.dashboard.hosts
        ),
    ]
    return [page for page in pages if page is not None]


def _signer(mine: Credentials) -> Signer:
    return Signer(lambda data: sign(mine.private_key, data), mine.certificate.public_bytes(Encoding.DER))


def _certificates_changed(registry: RunRegistry, server: Server, trust: Trust) -> None:
    """Sign with the new key from now on, cut the calls of revoked certificates, and tell the runs of their owners."""
    registry.store.signer = _signer(trust.credentials)
    server.calls.cut(trust.is_trusted)
    registry.members_revoked(trust.is_revoked)


def _stop_signal() -> asyncio.Event:
    """Set by SIGTERM or Ctrl-C."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping


def _announce(action: str, config: Config, port: int) -> None:
    """Log where the service listens, and write it to the ready file."""
    address = f"{config.server.listen.rsplit(':', 1)[0]}:{port}"
    ready = config.telemetry.ready_file
    if ready:
        fresh = ready.with_suffix(".partial")
        fresh.write_text(f"{address}\n")
        fresh.replace(ready)
    logs.log(action, listen=address, version=__version__)


async def watch_health(server: Server, store: StoreThread, trust: Trust) -> None:
    """Check every HEALTH_SECONDS until cancelled, and tell probes when the result changes."""
    serving = True
    while True:
        await asyncio.sleep(HEALTH_SECONDS)
        reason = await _problem(store, trust)
        if (reason is None) != serving:
            serving = reason is None
            logs.log("health_changed", level="info" if serving else "error", serving=serving, reason=reason)
            await server.tell_health(serving=serving)


async def _problem(store: StoreThread, trust: Trust) -> str | None:
    if trust.credentials.not_after < datetime.now(UTC):
        return "the aggregator's certificate has expired"
    try:
        await store.do(lambda opened: opened.check_writable())
    except DcfpcaError as error:
        return str(error)
    return None


def expired(runs: Iterable[Run | EndedRun], keep: StoreSection, now: float) -> list[str]:
    """The runs to delete: those that are over and beyond the newest `keep_runs`, or ended `keep_days` ago."""
    over = sorted((run for run in runs if run.status.over), key=lambda run: run.ended_at, reverse=True)
    beyond = over[keep.keep_runs :] if keep.keep_runs else []
    oldest = now - keep.keep_days * DAY_SECONDS
    old = [run for run in over if keep.keep_days and run.ended_at < oldest]
    return sorted({run.run_id for run in (*beyond, *old)})


async def delete_expired(registry: RunRegistry, keep: StoreSection) -> None:
    """Delete what has expired, each with a line in the audit log."""
    runs: list[Run | EndedRun] = [runner.run for runner in registry.runners.values()]
    runs += registry.ended.values()
    for run_id in expired(runs, keep, registry.store.now()):
        await registry.delete(run_id, "", "beyond [store] keep_runs or keep_days")


async def watch_retention(registry: RunRegistry, keep: StoreSection) -> None:
    """Delete expired runs now and then, until cancelled; a store that cannot be written is tried again later."""
    while keep.keep_runs or keep.keep_days:
        try:
            await delete_expired(registry, keep)
        except DcfpcaError as error:
            logs.log("retention_failed", level="warning", reason=str(error), hint=error.hint or None)
        await asyncio.sleep(RETENTION_SECONDS)


async def cut_expired(server: Server) -> None:
    """Cut the calls of certificates that expired since the call began, until cancelled."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        now = datetime.now(UTC)
        server.calls.cut(lambda who, now=now: who.certificate.not_valid_after_utc > now)  # type: ignore[misc]

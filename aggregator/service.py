"""The running service: its parts put together, watched, and taken apart in order."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime

from cryptography.hazmat.primitives.serialization import Encoding
from threadpoolctl import threadpool_limits

from aggregator.config import Config
from aggregator.dashboard import Dashboard
from aggregator.health import watch_health
from aggregator.rpc.server import Server
from aggregator.run_registry import House
from aggregator.store import participants
from aggregator.store.audit import Signer, check_consortium
from aggregator.store.store import Store
from aggregator.store_thread import Keeper
from aggregator.telemetry import Telemetry
from aggregator.trust import LOOK_SECONDS, Trust
from dcfpca import logs
from dcfpca.pki import sign
from dcfpca.version import __version__
from dcfpca.web_server import WebServer, serve_beside


def run_service(config: Config) -> None:
    """Serve until told to stop (SIGTERM or Ctrl-C)."""
    threadpool_limits(limits=config.server.threads)
    asyncio.run(_serve(config))


async def _serve(config: Config) -> None:
    store = Store(config.store.path)
    trust = Trust(config.server, participants.revoked(store.connection))
    mine = trust.credentials
    check_consortium(store.connection, mine.identity.consortium)
    signer = Signer(lambda data: sign(mine.private_key, data), mine.certificate.public_bytes(Encoding.DER))
    keeper = Keeper(store, signer, str(mine.identity))
    house = House(keeper, Telemetry())
    server = Server(config, house, trust)
    await house.start()
    await server.start()
    await keeper.record("aggregator_started", version=__version__)
    pages = await _serve_pages(config, house, trust)
    _say_ready(config, server.port)
    watchers = [
        asyncio.create_task(trust.watch(lambda: _certificates_changed(keeper, server, trust))),
        asyncio.create_task(cut_expired(server)),
        asyncio.create_task(watch_health(server, keeper, trust)),
    ]
    await _until_told_to_stop()
    logs.log("draining")
    for watcher in watchers:
        watcher.cancel()
    for page in pages:
        await page.stop()
    house.drain()
    await server.stop()
    await house.stop(config.server.drain_seconds)
    await keeper.record("aggregator_stopped")
    keeper.close()
    logs.log("stopped")


async def _serve_pages(config: Config, house: House, trust: Trust) -> list[WebServer]:
    """Metrics and dashboard; neither may keep the service from its work."""
    house.telemetry.watch(house, trust)
    pages = [
        await serve_beside("metrics", config.telemetry.metrics, house.telemetry.page),
        await serve_beside("dashboard", config.dashboard.listen, Dashboard(house, trust).page, config.dashboard.hosts),
    ]
    return [page for page in pages if page is not None]


def _certificates_changed(keeper: Keeper, server: Server, trust: Trust) -> None:
    """Sign with the new key from now on, and cut the calls of those who have been revoked."""
    mine = trust.credentials
    keeper.signer = Signer(lambda data: sign(mine.private_key, data), mine.certificate.public_bytes(Encoding.DER))
    server.calls.cut(trust.believes)


async def cut_expired(server: Server) -> None:
    """A certificate that was in force when a stream began does not keep it open for ever."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = datetime.now(UTC)
        server.calls.cut(lambda who, now=now: who.certificate.not_valid_after_utc > now)  # type: ignore[misc]


async def _until_told_to_stop() -> None:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    await told.wait()


def _say_ready(config: Config, port: int) -> None:
    address = f"{config.server.listen.rsplit(':', 1)[0]}:{port}"
    ready = config.telemetry.ready_file
    if ready:
        partial = ready.with_suffix(".partial")
        partial.write_text(f"{address}\n")
        partial.replace(ready)
    logs.log("serving", listen=address, version=__version__)

"""`dcfpca-aggregator`: the entry point of the service."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.serialization import Encoding
from threadpoolctl import threadpool_limits

from aggregator.config import Config, load_config
from aggregator.dashboard import Dashboard
from aggregator.health import watch_health
from aggregator.house import House
from aggregator.keeper import Keeper
from aggregator.rpc.probe import probe
from aggregator.rpc.server import Server
from aggregator.store import people
from aggregator.store.audit import Signer
from aggregator.store.store import Store
from aggregator.telemetry import Telemetry
from aggregator.trust import Trust
from dcfpca import logs
from dcfpca.errors import BadInput, DcfpcaError
from dcfpca.pki import sign
from dcfpca.version import __version__
from dcfpca.web import WebServer, serve_beside

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The aggregator of federated robust PCA.")
ConfigPath = Annotated[Path, typer.Option("--config", help="The configuration file (TOML).")]


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Say the version and stop.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def serve(config: ConfigPath) -> None:
    """Serve until told to stop (SIGTERM or Ctrl-C)."""
    settings = load_config(config)
    logs.setup(settings.telemetry.log, settings.telemetry.level)
    threadpool_limits(limits=settings.server.threads)
    asyncio.run(_serve(settings))


@app.command()
def check(config: ConfigPath) -> None:
    """Check configuration, certificate and store without serving."""
    settings = load_config(config)
    trust = Trust(settings.server, frozenset())
    Store(settings.store.path).close()
    typer.echo(f"ok: {trust.credentials.identity}, certificate until {trust.credentials.not_after:%Y-%m-%d}")


@app.command()
def health(config: ConfigPath) -> None:
    """Ask the service that runs on this configuration whether it serves; exit 0 only then."""
    typer.echo(f"ok: {probe(load_config(config))} is serving")


@app.command()
def backup(config: ConfigPath, out: Annotated[Path, typer.Option("--out", help="The copy to write.")]) -> None:
    """Copy the store, consistently, while the service runs; an open run goes on from it if no site is rounds ahead."""
    source = load_config(config).store.path
    if not source.exists():
        raise BadInput(f"there is no store at {source}", "check [store] path")
    if out.exists():
        raise BadInput(f"{out} exists already", "name a new file; nothing is overwritten")
    with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as live, sqlite3.connect(out) as copy:
        live.backup(copy)
    out.chmod(0o600)
    typer.echo(f"ok: {source} copied to {out}")


async def _serve(config: Config) -> None:
    store = Store(config.store.path)
    trust = Trust(config.server, people.revoked(store.connection))
    mine = trust.credentials
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
        asyncio.create_task(trust.watch(lambda: _certificates_changed(keeper, house, trust))),
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
    await house.stop()
    await keeper.record("aggregator_stopped")
    keeper.close()
    logs.log("stopped")


async def _serve_pages(config: Config, house: House, trust: Trust) -> list[WebServer]:
    """Metrics and dashboard; neither may keep the service from its work."""
    house.telemetry.watch(house, trust)
    pages = [
        await serve_beside("metrics", config.telemetry.metrics, house.telemetry.page),
        await serve_beside("dashboard", config.dashboard.listen, Dashboard(house, trust).page),
    ]
    return [page for page in pages if page is not None]


def _certificates_changed(keeper: Keeper, house: House, trust: Trust) -> None:
    """Sign with the new key from now on, and cut the streams of those who have been revoked."""
    mine = trust.credentials
    keeper.signer = Signer(lambda data: sign(mine.private_key, data), mine.certificate.public_bytes(Encoding.DER))
    for connection in house.presence.connections():
        if not trust.still_believes(connection.certificate):
            house.presence.cut(connection.fingerprint)


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


def main() -> None:
    """Run the command; every failure is a sentence and a hint on standard error."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        app()
    except DcfpcaError as error:
        sys.stderr.write(f"error: {error}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()

"""The `dcfpca-aggregator` command."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aggregator.config import load_config
from dcfpca import logs
from dcfpca.errors import BadInput
from dcfpca.text.command_runner import EXIT_CODES, run_command
from dcfpca.version import __version__

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help=f"The aggregator of federated robust PCA. {EXIT_CODES}",
)
ConfigPath = Annotated[Path, typer.Option("--config", help="The configuration file (TOML).")]


@app.callback(invoke_without_command=True)
def _top(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@app.command()
def serve(config: ConfigPath) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    settings = load_config(config)
    logs.setup(settings.telemetry.log, settings.telemetry.level)
    from aggregator.service import run_service  # noqa: PLC0415  imports NumPy, which a health probe must not wait for

    run_service(settings)


@app.command()
def check(config: ConfigPath) -> None:
    """Check configuration, certificate and store without serving."""
    from aggregator.store.audit import check_consortium  # noqa: PLC0415  as above
    from aggregator.store.store import Store  # noqa: PLC0415
    from aggregator.trust import Trust  # noqa: PLC0415

    settings = load_config(config)
    trust = Trust(settings.server, frozenset())
    store = Store(settings.store.path)
    check_consortium(store.connection, trust.credentials.identity.consortium)
    store.close()
    typer.echo(f"ok: {trust.credentials.identity}, certificate until {trust.credentials.not_after:%Y-%m-%d}")


@app.command()
def health(config: ConfigPath) -> None:
    """Ask the service with this configuration whether it is serving; exit 0 only if it is."""
    from aggregator.rpc.health_client import probe  # noqa: PLC0415  imports gRPC, which the other commands do not need

    typer.echo(f"ok: {probe(load_config(config))}")


@app.command()
def backup(config: ConfigPath, out: Annotated[Path, typer.Option("--out", help="The file to write.")]) -> None:
    """Make a consistent copy of the store while the service runs. After a restore, open runs continue."""
    source = load_config(config).store.path
    if not source.exists():
        raise BadInput(f"there is no store at {source}", "check [store] path")
    if out.exists():
        raise BadInput(f"{out} exists already", "name a new file; nothing is overwritten")
    with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as live, sqlite3.connect(out) as copy:
        live.backup(copy)
    out.chmod(0o600)
    typer.echo(f"ok: {source} copied to {out}")


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of `dcfpca-aggregator`."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    run_command(app, arguments)


if __name__ == "__main__":
    main()

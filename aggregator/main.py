"""The `dcfpca-aggregator` command.

Each command imports what it needs when it is called: container platforms call `health` every few seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dcfpca import logs
from dcfpca.errors import BadInput, UnusableState
from dcfpca.text.command_runner import EXIT_CODES, run_command
from dcfpca.version import __version__

if TYPE_CHECKING:
    from aggregator.config import Config
    from aggregator.store.examination import Findings

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
    settings = _settings(config)
    logs.setup_service(settings.telemetry.log, settings.telemetry.level)
    from aggregator.service.serve import run_service

    run_service(settings)


@app.command()
def check(config: ConfigPath) -> None:
    """Check configuration, certificate and store without serving: the whole file, every run and the audit log."""
    from aggregator.store.audit import check_consortium
    from aggregator.store.examination import examine
    from aggregator.store.postgresql import PostgresDatabase, prepare
    from aggregator.store.store import Store
    from aggregator.trust import Trust

    settings = _settings(config)
    trust = Trust(settings.server, frozenset())
    own = f"{trust.credentials.identity}, certificate until {trust.credentials.not_after:%Y-%m-%d}"
    url = settings.store.database_url()
    if url:
        prepare(url)
    store = Store(settings.store.path, PostgresDatabase(url) if url else None)
    try:
        check_consortium(store.connection, trust.credentials.identity.consortium)
        findings = examine(store.connection)
    finally:
        store.close()
    _raise_if_damaged("the store in PostgreSQL" if url else f"the store {settings.store.path}", findings)
    for sentence in findings.unknown:
        typer.echo(f"warning: {sentence}", err=True)
    typer.echo(f"ok: {own}; {findings.runs} runs in the store")


@app.command()
def health(
    config: ConfigPath,
    standby_ok: Annotated[bool, typer.Option("--standby-ok", help="Exit 0 for a standby, too.")] = False,
) -> None:
    """Ask the service with this configuration whether it is serving; exit 0 only if it is."""
    from aggregator.rpc.health_client import probe

    typer.echo(f"ok: {probe(_settings(config), standby_ok=standby_ok)}")


@app.command()
def backup(config: ConfigPath, out: Annotated[Path, typer.Option("--out", help="The file to write.")]) -> None:
    """Make a consistent copy of the store while the service runs. After a restore, open runs continue or pause."""
    from aggregator.store.examination import back_up

    settings = _settings(config).store
    if settings.database_url():
        raise BadInput("the store is in PostgreSQL", "back it up with pg_dump (deploy/RUNBOOK.md, A standby)")
    source = settings.path
    _raise_if_damaged(f"{source} was copied to {out}, but it", back_up(source, out))
    typer.echo(f"ok: {source} copied to {out}")


def _settings(config: Path) -> Config:
    from aggregator.config import load_config

    return load_config(config)


def _raise_if_damaged(what: str, findings: Findings) -> None:
    wrong = (*findings.file, *findings.damaged)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        hint = "deploy/RUNBOOK.md, A damaged run: restore a backup that checks, or delete the run (`dcfpca run delete`)"
        raise UnusableState(f"{what} is damaged: {wrong[0]}{more}", hint)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of `dcfpca-aggregator`."""
    run_command(app, arguments)


if __name__ == "__main__":
    main()

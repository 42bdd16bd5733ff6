"""The `dcfpca` command: one tree of commands, one way to fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from dcfpca.cli import certs, participants, runs
from dcfpca.cli.audit import audit
from dcfpca.cli.bench import app as bench_app
from dcfpca.cli.demo import demo
from dcfpca.cli.doctor import doctor
from dcfpca.cli.export import export
from dcfpca.cli.report import report
from dcfpca.cli.speech import FAILED, report_error, result
from dcfpca.errors import DcfpcaError
from dcfpca.version import __version__

app = typer.Typer(
    name="dcfpca",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(doctor)
runs.app.command()(export)
runs.app.command()(report)
runs.app.command()(audit)
app.add_typer(runs.app, name="run")
app.add_typer(participants.app, name="participants")
app.add_typer(certs.app, name="certs")
app.add_typer(bench_app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        result(f"dcfpca {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Federated robust PCA: operate a consortium's runs. Exit codes: 0 done, 1 refused or failed, 2 misuse."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; our own errors become `error:` and `hint:` on stderr."""
    try:
        app(args=None if arguments is None else list(arguments))
    except DcfpcaError as error:
        sys.exit(report_error(error))
    except BrokenPipeError:
        # Whoever read our output has had enough, as in `dcfpca run list | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)


if __name__ == "__main__":
    main()

"""The `dcfpca` command: one tree of commands, one way to fail."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dcfpca.cli import certs, participants, runs
from dcfpca.cli.audit import audit
from dcfpca.cli.doctor import doctor
from dcfpca.cli.export import export
from dcfpca.cli.report import report
from dcfpca.errors import DcfpcaError
from dcfpca.text.console import FAILED, report_error, result
from dcfpca.version import __version__

app = typer.Typer(
    name="dcfpca",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(doctor)
runs.app.command()(export)
runs.app.command()(report)
runs.app.command()(audit)
app.add_typer(runs.app, name="run")
app.add_typer(participants.app, name="participants")
app.add_typer(certs.app, name="certs")


LATE = {
    "demo": ("dcfpca.cli.demo:demo", "Show it all on this machine: certificates, services, a run, results, a refusal."),
    "bench": ("dcfpca.cli.bench:app", "Measure speed on this machine."),
}
"""Commands that bring the numerics with them, a second of imports: loaded when they are called, not to be listed."""


def _late(name: str) -> Any:
    module, _, attribute = LATE[name][0].partition(":")
    found, shelf = getattr(import_module(module), attribute), typer.Typer()
    if isinstance(found, typer.Typer):
        shelf.add_typer(found, name=name)
    else:
        shelf.command(name)(found)
    return typer.main.get_group(shelf).commands[name]


def _add_late(name: str) -> None:
    # Everything behind the name is the real command's to read, `--help` included.
    passed_on = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @app.command(name, help=LATE[name][1], context_settings=passed_on)
    def call(context: typer.Context) -> None:
        command = _late(name)
        with command.make_context(name, context.args, parent=context.parent) as inside:
            command.invoke(inside)


for _name in LATE:
    _add_late(_name)


def command_tree() -> TyperGroup:
    """All commands as they are when called, for those who describe or check them."""
    tree = typer.main.get_group(app)
    tree.commands.update({name: _late(name) for name in LATE})
    return tree


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

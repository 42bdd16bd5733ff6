"""The `dcfpca` command: the tree of operator commands."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dcfpca.cli import certs, init, participants, runs
from dcfpca.cli.audit import audit
from dcfpca.cli.doctor import doctor
from dcfpca.cli.export import export
from dcfpca.cli.report import report
from dcfpca.text.command_runner import EXIT_CODES, run_command
from dcfpca.text.console import result
from dcfpca.version import __version__

app = typer.Typer(
    name="dcfpca",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(doctor)
app.command()(init.up)
app.command()(init.down)
runs.app.command()(export)
runs.app.command()(report)
runs.app.command()(audit)
app.add_typer(init.app, name="init")
app.add_typer(runs.app, name="run")
app.add_typer(participants.app, name="participants")
app.add_typer(certs.app, name="certs")


LAZY_COMMANDS = {
    "demo": (
        "dcfpca.cli.demo:demo",
        "Run a whole federation on this machine: certificates, services, a run, results and a refused export.",
    ),
    "bench": ("dcfpca.cli.bench:app", "Measure speed on this machine."),
}
"""Commands that import the numerics, which takes a second: imported when called, not for `--help` of the others."""


def _load(name: str) -> Any:
    module, _, attribute = LAZY_COMMANDS[name][0].partition(":")
    found, parent = getattr(import_module(module), attribute), typer.Typer()
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    return typer.main.get_group(parent).commands[name]


def _add_lazy(name: str) -> None:
    # The real command parses everything after its name, `--help` included.
    passed_on = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @app.command(name, help=LAZY_COMMANDS[name][1], context_settings=passed_on)
    def call(context: typer.Context) -> None:
        command = _load(name)
        with command.make_context(name, context.args, parent=context.parent) as inside:
            command.invoke(inside)


for _name in LAZY_COMMANDS:
    _add_lazy(_name)


def command_tree() -> TyperGroup:
    """The whole tree with the lazy commands loaded, for the reference page and tests."""
    tree = typer.main.get_group(app)
    tree.commands.update({name: _load(name) for name in LAZY_COMMANDS})
    return tree


def _print_version(wanted: bool) -> None:
    if wanted:
        result(f"dcfpca {__version__}")
        raise typer.Exit


@app.callback(help=f"Federated robust PCA: operate the runs of a consortium. {EXIT_CODES}")
def common(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that come before a command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point of `dcfpca`."""
    run_command(app, arguments)


if __name__ == "__main__":
    main()

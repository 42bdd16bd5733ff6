"""The `dcfpca` command: the tree of operator commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Self

import typer
from typer.core import TyperCommand, TyperGroup

from dcfpca.text.command_runner import EXIT_CODES, run_command
from dcfpca.text.console import result
from dcfpca.version import __version__


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is, as module:attribute, and the line that the group's help shows for it."""

    place: str
    help: str


COMMANDS = {
    "doctor": LazyCommand(
        "dcfpca.cli.doctor:doctor",
        "Check files, disk, network, TLS, clock, version and permission, with remedies. Exit 1 if any check fails.",
    ),
    "up": LazyCommand(
        "dcfpca.cli.init:up",
        "Start the services of a local consortium that are not running, and wait until every site is connected.",
    ),
    "down": LazyCommand(
        "dcfpca.cli.init:down", "Stop a local consortium. Unfinished runs continue after the next `dcfpca up`."
    ),
    "demo": LazyCommand(
        "dcfpca.cli.demo:demo",
        "Run a whole federation on this machine: certificates, services, a run, results and a refused export.",
    ),
    "init": LazyCommand(
        "dcfpca.cli.init:app",
        "Write configurations with comments: for one role, or for a whole consortium on this machine.",
    ),
    "run": LazyCommand(
        "dcfpca.cli.run_results:app", "Propose, inspect, watch, abort, finish, resume, restart, export and audit runs."
    ),
    "participants": LazyCommand("dcfpca.cli.participants:app", "List participants, and revoke one."),
    "certs": LazyCommand(
        "dcfpca.cli.certs:app", "Make a consortium CA, ask for certificates, approve, renew and revoke them."
    ),
}
"""Every command, where it is, and its line in `dcfpca --help`: a command's imports are paid by those who call it."""


class LazyGroup(TyperGroup):
    """Lists COMMANDS by their help lines; imports a command's module when it is called, completed or asked for help."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, lazy in COMMANDS.items():
            self.commands.setdefault(name, TyperCommand(name, help=lazy.help))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that `args` name, then do as any group does."""
        if args and args[0] in COMMANDS:
            self._load(args[0])
        return super().resolve_command(ctx, args)

    def loaded(self) -> Self:
        """This group, with every command loaded."""
        for name in COMMANDS:
            self._load(name)
        return self

    def _load(self, name: str) -> None:
        module, _, attribute = COMMANDS[name].place.partition(":")
        # A callback keeps Typer from folding a group of one command into that command.
        found, parent = getattr(import_module(module), attribute), typer.Typer(callback=lambda: None)
        if isinstance(found, typer.Typer):
            parent.add_typer(found, name=name)
        else:
            parent.command(name)(found)
        self.commands[name] = typer.main.get_group(parent).commands[name]


app = typer.Typer(name="dcfpca", cls=LazyGroup, no_args_is_help=True, pretty_exceptions_enable=False)


def command_tree() -> LazyGroup:
    """The whole tree with every command loaded, for the reference page and tests."""
    tree = typer.main.get_group(app)
    assert isinstance(tree, LazyGroup)
    return tree.loaded()


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

"""A group of commands whose modules are imported when a command is called, completed or asked for its own help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Self

import typer
from typer.core import TyperCommand, TyperGroup


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command is, as module:attribute, and the line that the group's help shows for it."""

    place: str
    help: str


class LazyGroup(TyperGroup):
    """Lists `lazy_commands` by their help lines; a command that is resolved is the real one."""

    lazy_commands: ClassVar[Mapping[str, LazyCommand]] = {}

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, lazy in self.lazy_commands.items():
            self.commands.setdefault(name, TyperCommand(name, help=lazy.help))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Load the command that `args` name, then do as any group does."""
        if args:
            self._load(args[0])
        return super().resolve_command(ctx, args)

    def loaded(self) -> Self:
        """This group, with every command loaded."""
        for name in self.lazy_commands:
            self._load(name)
        return self

    def _load(self, name: str) -> None:
        if name not in self.lazy_commands:
            return
        module, _, attribute = self.lazy_commands[name].place.partition(":")
        found, parent = getattr(import_module(module), attribute), typer.Typer(callback=_nothing)
        if isinstance(found, typer.Typer):
            parent.add_typer(found, name=name)
        else:
            parent.command(name)(found)
        self.commands[name] = typer.main.get_group(parent).commands[name]


def lazy_group(commands: Mapping[str, LazyCommand]) -> type[LazyGroup]:
    """The class of a group with these commands, for `typer.Typer(cls=…)`."""
    return type("LazyGroup", (LazyGroup,), {"lazy_commands": commands})


def _nothing() -> None:
    """A callback keeps Typer from folding a group of one command into that command."""

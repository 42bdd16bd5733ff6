"""Tracks which participants are connected. Each identity has at most one stream of assignments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Connection:
    """One open stream of assignments."""

    name: str


class Presence:
    """The open streams by participant. `changed(name)` is called when one opens or ends."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._open: dict[str, Connection] = {}
        self._changed = changed

    def enter(self, name: str) -> Connection | None:
        """Register a stream; None when this identity has one already."""
        if name in self._open:
            return None
        connection = Connection(name)
        self._open[name] = connection
        self._changed(name)
        return connection

    def leave(self, connection: Connection) -> None:
        """Remove a stream that has ended."""
        if self._open.get(connection.name) is connection:
            del self._open[connection.name]
            self._changed(connection.name)

    def is_connected(self, name: str) -> bool:
        """True if this participant has an open stream."""
        return name in self._open

    def names(self) -> frozenset[str]:
        """Everybody who is connected."""
        return frozenset(self._open)

"""Stores of both kinds, so that one suite tests them both."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from aggregator.store.postgresql import Lease, PostgresDatabase, connect, prepare
from aggregator.store.store import Store
from tests.support.services.postgresql import Server

OpenStore = Callable[[Path], Store]
"""Opens the store that belongs to this path, new or as it was left."""


class PostgresStores:
    """A database for each path. Opening takes the lease from whoever had it, as after its end."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._urls: dict[Path, str] = {}

    def __call__(self, path: Path) -> Store:
        if path not in self._urls:
            self._urls[path] = self._server.new_database()
            prepare(self._urls[path])
        return Store(path, PostgresDatabase(self._urls[path], take_over(self._urls[path])))


def take_over(url: str, holder: str = "test") -> int:
    """The term under which this holder now serves; the lease of the one before is taken for expired."""
    with connect(url) as connection:
        connection.execute("UPDATE lease SET expires = '-infinity'")
    with closing(Lease(url, holder)) as lease:
        assert lease.take()
        return lease.term

"""The port between the store and its database: SQLite (database.py) or PostgreSQL (postgresql.py).

Statements are SQL that both understand, with `?` in the place of each value. They are constants beside the functions
that use them; what differs between the two databases is behind the methods of `Database`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

VERSION = 2
"""The version of the schema, the same in both databases."""


class Rows(Protocol):
    """The rows that a statement returned."""

    def fetchone(self) -> Any:
        """The next row; None when there is none."""

    def fetchall(self) -> list[Any]:
        """All rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """One connection, used by one thread at a time. What fails raises a DcfpcaError or a sqlite3.DatabaseError."""

    def execute(self, statement: str, values: Sequence[Stored] = ..., /) -> Rows:
        """Run a statement with these values; outside a transaction it commits by itself."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Stored]], /) -> object:
        """Run a statement once for each row of values."""

    def transaction(self, *, wait_for_disk: bool = True, fold: bool = True) -> AbstractContextManager[None]:
        """A transaction; a failure rolls it back and raises StoreFailed.

        What is committed survives the death of the process in any case. With `wait_for_disk` it survives a power cut
        too; without, a power cut may undo it together with what was committed since the last one that waited. With
        `fold` a log that has grown long is folded as part of it; without, by the next one or by `fold_long_log`.
        """

    def fold_long_log(self) -> None:
        """Fold the log of past transactions if it has grown long, where that is ours to do; should it fail, later."""

    def fold_log(self) -> None:
        """Give back the space that the log of past transactions takes, where that is ours to do."""

    def probe_write(self, *, commit: bool) -> None:
        """Raise StoreFailed or BadInput when a transaction cannot be written. Without `commit` nothing is written."""

    def damage(self, table: str = "") -> list[str]:
        """What the database's own check finds wrong with this table, or with everything; one sentence each."""

    def close(self) -> None:
        """Close the connection."""


Stored = str | bytes | int | float | None

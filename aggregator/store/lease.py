"""The lease in the database: the aggregator that holds it serves, the others wait.

The holder renews it every second. When it has not for LEASE_SECONDS, by the clock of the database, whoever asks next
takes it over under the next term, after which no transaction of the earlier term can commit (postgresql.py). A lease
that lasts longer than any was ever granted is free, too: the clock of the database was set back.
"""

from __future__ import annotations

from typing import Any

from aggregator.store.postgresql import LeaseLost, connect, translated

LEASE_SECONDS = 4.0
RENEW_SECONDS = 1.0
# A clock that is set back by less costs no more than that much of waiting, and no takeover.
_LONGEST_SECONDS = 3 * LEASE_SECONDS

_TAKE = (
    "UPDATE lease SET term = term + 1, holder = %s, expires = clock_timestamp() + make_interval(secs => %s)"
    " WHERE expires NOT BETWEEN clock_timestamp() AND clock_timestamp() + make_interval(secs => %s) RETURNING term"
)
_RENEW = "UPDATE lease SET expires = clock_timestamp() + make_interval(secs => %s) WHERE term = %s RETURNING term"
_RELEASE = "UPDATE lease SET expires = '-infinity' WHERE term = %s"
_HOLDER = "SELECT holder FROM lease"
# A transaction of the holder keeps the takeover waiting; ask again instead.
_SETTINGS = "-c statement_timeout=2s"


class Lease:
    """The lease as one aggregator sees it, over a connection of its own: long transactions must not delay a renewal."""

    def __init__(self, url: str, holder: str) -> None:
        self._url, self._me = url, holder
        self._connection: Any = None
        self.term = 0
        self.last_holder = ""

    def take(self) -> bool:
        """Take the lease if nobody holds it; raises StoreFailed when the database does not answer."""
        row = self._execute(_TAKE, (self._me, LEASE_SECONDS, _LONGEST_SECONDS)).fetchone()
        if row is None:
            self.last_holder = self.holder()
            return False
        (self.term,), self.last_holder = row, self._me
        return True

    def renew(self) -> None:
        """Keep the lease; raises LeaseLost when another has taken it, StoreFailed when the database does not answer."""
        if self._execute(_RENEW, (LEASE_SECONDS, self.term)).fetchone() is None:
            raise LeaseLost(f"{self.holder()} has taken over")

    def release(self) -> None:
        """Give the lease back, so that another takes it at once."""
        self._execute(_RELEASE, (self.term,))

    def holder(self) -> str:
        """Who holds the lease, or held it last."""
        return str(self._execute(_HOLDER, ()).fetchone()[0])

    def close(self) -> None:
        """Close the connection; the lease stays as it is."""
        if self._connection is not None:
            self._connection.close()

    def _execute(self, statement: str, values: tuple[object, ...]) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._url, _SETTINGS)
        with translated():
            return self._connection.execute(statement, values or None)

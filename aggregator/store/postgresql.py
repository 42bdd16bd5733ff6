"""The store in PostgreSQL, for aggregators that stand by for each other: whoever holds the lease serves.

The holder renews it twice a second. When it has not for LEASE_SECONDS, by the clock of the database, whoever asks next
takes it over under the next term. A lease that lasts longer than any was ever granted is free, too: the clock of the
database was set back.

Every transaction carries the term under which this process serves: it locks the row of the lease against a change of
term and compares. A process that was paused or cut off, and that another one has replaced, can therefore no longer
commit anything. Reads are not fenced: they show a state that was committed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import resources
from typing import Any

from aggregator.store.database import StoreFailed, statements
from aggregator.store.database_port import VERSION, Rows, Stored
from dcfpca.errors import BadInput, DcfpcaError, UnusableState

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_NO_WAIT = "SET LOCAL synchronous_commit = off"
# Not in the way of the renewal, which changes no key of the row, but of whoever takes the lease over.
_TERM = "SELECT term FROM lease FOR KEY SHARE"
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(721839001)"
_HAS_VERSION = "SELECT to_regclass('store_version')"
_VERSION = "SELECT version FROM store_version"
_SET_VERSION = "INSERT INTO store_version (version) VALUES (%s)"

_TYPES = (("BLOB", "BYTEA"), ("REAL", "DOUBLE PRECISION"), ("INTEGER", "BIGINT"), (" WITHOUT ROWID", ""))

_SESSION = {
    "application_name": "dcfpca-aggregator",
    "connect_timeout": "3",
    # A server or a line that has died is noticed within seconds, by us and by PostgreSQL, which then ends the open
    # transaction: it would keep the successor from taking over.
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "4000",
}
_SETTINGS = "-c idle_in_transaction_session_timeout=3s -c tcp_keepalives_idle=2 -c tcp_keepalives_interval=1"

LEASE_SECONDS = 5.0
RENEW_SECONDS = 0.5
HELD_SECONDS = 4.0
"""How long after it asked for its last renewal a holder says that it serves: a second less than it has the lease, in
which an answer may be on its way, and long enough to outlast a database that hangs for three."""
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
_LEASE_SETTINGS = "-c statement_timeout=2s"


class LeaseLost(StoreFailed):
    """Another aggregator serves by now; this one can no longer commit anything."""


class PostgresDatabase:
    """A connection to the database at this URL; `Database` of database_port.py says what its methods do.

    A connection that broke is made again at the next use, but not within a transaction: what is left of it would
    be committed alone, and without a look at the lease.
    """

    def __init__(self, url: str, term: int | None = None) -> None:
        """`term`: of the lease under which this process serves; without one, nothing can be written."""
        self._url, self._term = url, term
        self._connection = connect(url)
        self._in_transaction = False

    def execute(self, statement: str, values: Sequence[Stored] = (), /) -> Rows:
        """Run a statement."""
        with translated():
            rows: Rows = self._live().execute(_placeholders(statement), values or None)
        return rows

    def executemany(self, statement: str, rows: Iterable[Sequence[Stored]], /) -> None:
        """Run a statement once for each row of values."""
        with translated(), self._live().cursor() as cursor:
            cursor.executemany(_placeholders(statement), list(rows))

    @contextmanager
    def transaction(self, *, wait_for_disk: bool = True, fold: bool = True) -> Iterator[None]:
        """A fenced transaction, rolled back on failure; raises LeaseLost when another aggregator serves."""
        try:
            self._begin(wait_for_disk=wait_for_disk)
            self._in_transaction = True
            yield
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        finally:
            self._in_transaction = False

    def _begin(self, *, wait_for_disk: bool) -> None:
        parts = (_BEGIN, _TERM) if wait_for_disk else (_BEGIN, _NO_WAIT, _TERM)
        with translated():
            cursor = self._live().execute("; ".join(parts))
            while cursor.nextset():
                pass
            (term,) = cursor.fetchone()
        if term != self._term:
            raise LeaseLost("another aggregator has taken over", "this one ends; its supervisor starts it as a standby")

    def _roll_back(self) -> None:
        """A connection that cannot be rolled back is closed: the server then undoes the transaction."""
        with suppress(DcfpcaError):
            with translated():
                self._connection.execute("ROLLBACK")
            return
        self._connection.close()

    def _live(self) -> Any:
        if self._connection.closed and not self._in_transaction:
            self._connection = connect(self._url)
        return self._connection

    def fold_long_log(self) -> None:
        """Nothing: the log of PostgreSQL is its own."""

    def fold_log(self) -> None:
        """Nothing: the log of PostgreSQL is its own."""

    def probe_write(self, *, commit: bool) -> None:
        """Prove that a transaction can be begun under our term."""
        with self.transaction(wait_for_disk=commit):
            pass

    def damage(self, table: str = "") -> list[str]:
        """Nothing: PostgreSQL checks its own files."""
        return []

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def prepare(url: str) -> None:
    """Make the tables of a new store; raises UnusableState when they are of another version."""
    with translated(), connect(url) as connection, connection.transaction():
        connection.execute(_ONE_AT_A_TIME)
        if connection.execute(_HAS_VERSION).fetchone() == (None,):
            for statement in _schema():
                connection.execute(statement)
            connection.execute(_SET_VERSION, (VERSION,))
        (version,) = connection.execute(_VERSION).fetchone()
    if version != VERSION:
        sentence = f"the store in the database has version {version}, and this software knows {VERSION}"
        raise UnusableState(sentence, "run the software that wrote it, or restore the dump taken before the upgrade")


def _schema() -> Iterator[str]:
    """The statements of the schema in PostgreSQL's words."""
    here = resources.files("aggregator.store")
    for name in ("schema.sql", "schema-lease.sql"):
        for statement in statements(here.joinpath(name).read_text()):
            translation = "\n".join(line.partition("--")[0] for line in statement.splitlines())
            for ours, theirs in _TYPES:
                translation = translation.replace(ours, theirs)
            yield translation


def connect(url: str, settings: str = "") -> Any:
    """A connection that commits each statement by itself; raises StoreFailed when there is no answer."""
    psycopg = _driver()
    with translated():
        given = psycopg.conninfo.conninfo_to_dict(url).get("options") or ""
        session = {"options": f"{given} {_SETTINGS} {settings}", **_SESSION}
        return psycopg.connect(url, autocommit=True, prepare_threshold=None, **session)


@contextmanager
def translated() -> Iterator[None]:
    """Raise what the driver complains of as a DcfpcaError; the password is in none of its messages."""
    psycopg = _driver()
    try:
        yield
    # InternalError: among others a transaction that was left idle for too long, and a server that only lets us read.
    except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError) as error:
        hint = "look at PostgreSQL and the network; what was acknowledged is safe"
        raise StoreFailed(f"the store's database does not answer: {_first_line(error)}", hint) from error
    except psycopg.DataError as error:
        raise BadInput(f"the store's database refuses a value: {_first_line(error)}", "change it") from error
    except psycopg.Error as error:
        hint = "check [store] url, and that its user may create tables in that database"
        raise BadInput(f"the store's database refuses a statement: {_first_line(error)}", hint) from error


def _first_line(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split("\n")[0].split())


def _placeholders(statement: str) -> str:
    return statement.replace("?", "%s")


def _driver() -> Any:
    try:
        import psycopg  # noqa: PLC0415  an extra, which a store in SQLite does not need
    except ImportError as error:
        raise BadInput("[store] url needs the PostgreSQL driver", "pip install 'dcfpca[postgres]'") from error
    return psycopg


class Lease:
    """The lease as one aggregator sees it, over a connection of its own: long transactions must not delay a renewal."""

    def __init__(self, url: str, holder: str) -> None:
        self._url, self._me = url, holder
        self._connection: Any = None
        self._asked_at = -math.inf
        self.term = 0
        self.last_holder = ""

    @property
    def is_held(self) -> bool:
        """False from a second before another may hold it, also in a process that was paused until now."""
        return time.monotonic() - self._asked_at < HELD_SECONDS

    def take(self) -> bool:
        """Take the lease if nobody holds it; raises StoreFailed when the database does not answer."""
        asked_at = time.monotonic()
        row = self._execute(_TAKE, (self._me, LEASE_SECONDS, _LONGEST_SECONDS)).fetchone()
        if row is None:
            self.last_holder = self.holder()
            return False
        (self.term,), self.last_holder, self._asked_at = row, self._me, asked_at
        return True

    def renew(self) -> None:
        """Keep the lease; raises LeaseLost when another has taken it, StoreFailed when the database does not answer."""
        asked_at = time.monotonic()
        if self._execute(_RENEW, (LEASE_SECONDS, self.term)).fetchone() is None:
            raise LeaseLost(f"{self.holder()} has taken over")
        self._asked_at = asked_at

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
            self._connection = connect(self._url, _LEASE_SETTINGS)
        with translated():
            return self._connection.execute(statement, values or None)

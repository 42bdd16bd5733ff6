"""One aggregator serves at a time, and one that another has replaced can commit nothing any more."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from aggregator.run.state import Run
from aggregator.service.standby import LeaseKeeper
from aggregator.store import participants
from aggregator.store.database import StoreFailed
from aggregator.store.postgresql import HELD_SECONDS, Lease, LeaseLost, PostgresDatabase, connect, prepare
from aggregator.store.store import Commit, Store
from dcfpca.errors import BadInput, UnusableState
from dcfpca.methods import method_of
from tests.support.runs.rules import spec_of
from tests.support.runs.stored_runs import load_runs
from tests.support.services.postgresql import Server, needs_postgresql
from tests.support.services.stores import take_over

pytestmark = [pytest.mark.slow, needs_postgresql]


@pytest.fixture
def url(postgresql: Server) -> str:
    made = postgresql.new_database()
    prepare(made)
    return made


@pytest.fixture
def pair(url: str) -> Iterator[tuple[Lease, Lease]]:
    with closing(Lease(url, "one")) as one, closing(Lease(url, "two")) as two:
        yield one, two


def test_one_of_two_holds_the_lease_until_it_gives_it_back(pair: tuple[Lease, Lease]) -> None:
    one, two = pair
    assert one.take()
    assert not two.take()
    assert two.last_holder == "one"
    one.renew()
    one.release()
    assert two.take()
    assert two.term == one.term + 1
    with pytest.raises(LeaseLost, match="two has taken over"):
        one.renew()


def test_one_that_was_replaced_commits_nothing(url: str, tmp_path: Path) -> None:
    spec, run = spec_of(), Run(run_id="r1", created_at=1.0)
    old = Store(tmp_path / "old", PostgresDatabase(url, take_over(url)))
    old.create_run(run, spec.canonical(), "request", method_of(spec).begin())
    new = Store(tmp_path / "new", PostgresDatabase(url, take_over(url)))
    before = load_runs(new)
    with pytest.raises(LeaseLost):
        old.commit(Commit(run=run, seq=1, events=[], checkpoint=True))
    with pytest.raises(LeaseLost):
        participants.revoke(old.connection, ["mark"], "ann", "", 0.0)
    with pytest.raises(LeaseLost):
        old.check_writable()
    assert [stored.seq for stored in load_runs(new)] == [stored.seq for stored in before] == [0]
    assert participants.revoked(new.connection) == frozenset()
    new.commit(Commit(run=run, seq=2, events=[], checkpoint=True))
    assert [stored.seq for stored in load_runs(old)] == [2]
    old.close()
    new.close()


def test_a_transaction_that_began_before_the_takeover_ends_before_it(url: str) -> None:
    """The takeover waits for it; the renewal does not."""
    with closing(Lease(url, "one")) as one, closing(Lease(url, "two")) as two:
        assert one.take()
        with closing(PostgresDatabase(url, one.term)) as database:
            with connect(url) as connection:
                connection.execute("UPDATE lease SET expires = '-infinity'")
            with database.transaction():
                with pytest.raises(StoreFailed, match="statement timeout"):
                    two.take()
                one.renew()
                database.execute("INSERT INTO revoked VALUES (?, ?, ?, ?)", ("mark", "ann", "", 0.0))
            assert not two.take(), "it was renewed meanwhile"
            assert participants.revoked(database) == {"mark"}


def broken_off(database: PostgresDatabase, url: str) -> None:
    """A transaction whose connection the server ends in the middle."""
    with database.transaction():
        database.execute("INSERT INTO revoked VALUES (?, ?, ?, ?)", ("mark", "ann", "", 0.0))
        with connect(url) as other:
            other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'")
        database.execute("SELECT 1")


def test_a_connection_that_breaks_is_made_again_and_its_transaction_undone(url: str) -> None:
    with closing(PostgresDatabase(url, take_over(url))) as database:
        with pytest.raises(StoreFailed):
            broken_off(database, url)
        assert participants.revoked(database) == frozenset()
        participants.revoke(database, ["mark"], "ann", "", 0.0)
        assert participants.revoked(database) == {"mark"}


def test_a_server_ends_when_its_lease_is_lost(url: str) -> None:
    ended = threading.Event()
    codes: list[int] = []
    with closing(Lease(url, "one")) as lease:
        assert lease.take()
        LeaseKeeper(lease, lambda code: (codes.append(code), ended.set()))  # type: ignore[func-returns-value,arg-type]
        take_over(url, "two")
        assert ended.wait(20)
    assert codes == [1]


def ends_of(lease: Lease, trouble: Callable[[], object], cure: Callable[[], object] = lambda: None) -> list[int]:
    """The exit codes with which the keeper of this lease ends its process after this trouble.

    Its thread is awaited before the caller closes the connection: a connection must not be closed under a thread that
    waits on it, which would then act on whatever has the same file descriptor next.
    """
    ended, codes = threading.Event(), list[int]()

    def end(code: int) -> None:
        codes.append(code)
        ended.set()

    assert lease.take()
    keeper = LeaseKeeper(lease, end)
    try:
        trouble()
        assert ended.wait(30)
    finally:
        keeper._stopped.set()
        cure()
        keeper._thread.join(30)
    assert not keeper._thread.is_alive()
    return codes


def test_a_server_ends_when_its_renewals_are_never_answered(url: str) -> None:
    with closing(Lease(url, "one")) as lease:
        assert not lease.holder()
        frozen = lease._connection.info.backend_pid
        stop, go_on = (partial(os.kill, frozen, number) for number in (signal.SIGSTOP, signal.SIGCONT))
        assert ends_of(lease, stop, go_on) == [1]


def test_a_server_ends_when_the_database_refuses_its_renewals(url: str) -> None:
    with closing(Lease(url, "one")) as lease, connect(url) as other:
        assert ends_of(lease, lambda: other.execute("ALTER TABLE lease RENAME TO gone")) == [1]


def test_a_holder_that_was_paused_until_its_lease_is_about_to_run_out_does_not_claim_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Lease(url, "one")) as lease:
        assert not lease.is_held
        assert lease.take()
        assert lease.is_held
        before = time.monotonic()
        monkeypatch.setattr("aggregator.store.postgresql.time.monotonic", lambda: before + HELD_SECONDS)
        assert not lease.is_held
        lease.renew()
        assert lease.is_held, "nobody had taken it meanwhile"


def test_a_lease_from_before_the_clock_was_set_back_is_free(url: str, pair: tuple[Lease, Lease]) -> None:
    one, two = pair
    assert one.take()
    with connect(url) as connection:
        connection.execute("UPDATE lease SET expires = expires + make_interval(hours => 1)")
    assert two.take()
    assert not one.take()


def test_one_of_many_successors_takes_the_lease(url: str) -> None:
    take_over(url)
    with connect(url) as connection:
        connection.execute("UPDATE lease SET expires = '-infinity'")
    with ExitStack() as stack, ThreadPoolExecutor(8) as threads:
        leases = [stack.enter_context(closing(Lease(url, str(number)))) for number in range(8)]
        taken = list(threads.map(Lease.take, leases))
        assert taken.count(True) == 1
        assert leases[0].holder() == str(taken.index(True))


def paused(database: PostgresDatabase) -> None:
    """A transaction that is left idle until the server ends it."""
    with database.transaction():
        database.execute("SET idle_in_transaction_session_timeout = 100")
        with connect(database._url) as other:
            while other.execute("SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction'").fetchone():
                pass
        database.execute("SELECT 1")


def test_a_transaction_that_was_paused_for_too_long_can_be_tried_again(url: str) -> None:
    with closing(PostgresDatabase(url, take_over(url))) as database:
        with pytest.raises(StoreFailed):
            paused(database)
        database.probe_write(commit=True)


def cut_in_two(database: PostgresDatabase) -> None:
    """A transaction that goes on after its connection is gone."""
    with database.transaction():
        database._connection.close()
        database.execute("INSERT INTO revoked VALUES (?, ?, ?, ?)", ("mark", "ann", "", 0.0))


def test_half_a_transaction_is_not_written_over_a_new_connection(url: str) -> None:
    with closing(PostgresDatabase(url, take_over(url))) as database:
        with pytest.raises(StoreFailed):
            cut_in_two(database)
        assert participants.revoked(database) == frozenset()


def test_a_database_that_only_lets_us_read_is_waited_for(url: str) -> None:
    reading = f"{url}&options=-cdefault_transaction_read_only%3Don"
    with closing(Lease(reading, "one")) as lease, pytest.raises(StoreFailed, match="read-only"):
        lease.take()


def test_without_the_lease_nothing_is_written_and_everything_can_be_read(url: str) -> None:
    with closing(PostgresDatabase(url)) as database:
        assert participants.everyone(database) == []
        with pytest.raises(LeaseLost):
            participants.revoke(database, ["mark"], "ann", "", 0.0)


def test_what_postgresql_cannot_hold_is_refused_as_bad_input(url: str) -> None:
    with closing(PostgresDatabase(url, take_over(url))) as database:
        with pytest.raises(BadInput, match="refuses a value"):
            participants.revoke(database, ["a\0b"], "ann", "", 0.0)
        assert participants.revoked(database) == frozenset()


def test_a_store_of_another_version_is_not_touched(url: str) -> None:
    with connect(url) as connection:
        connection.execute("UPDATE store_version SET version = 99")
    with pytest.raises(UnusableState, match="version 99"):
        prepare(url)


def test_a_database_that_does_not_answer_is_said_without_the_password() -> None:
    with pytest.raises(StoreFailed, match="does not answer") as caught:
        prepare("postgresql://site:s3cret@127.0.0.1:1/store")
    assert "s3cret" not in str(caught.value) + caught.value.hint

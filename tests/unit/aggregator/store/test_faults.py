"""A store that is new, old, newer, locked, damaged or on a full disk: one clear sentence, and no damage."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aggregator.main import app
from aggregator.run import events
from aggregator.run.state import Run
from aggregator.store.audit import Signer
from aggregator.store.database import VERSION, StoreFailed
from aggregator.store.store import Commit, Store
from aggregator.store.thread import StoreThread
from dcfpca.errors import BadInput
from dcfpca.methods import method_of
from tests.support.runs.rules import Machine, spec_of
from tests.support.runs.stored_runs import load_runs

SPEC = spec_of()


def with_run(path: Path) -> Store:
    store = Store(path)
    run = Run(run_id="r1", created_at=1.0)
    store.create_run(run, SPEC.canonical(), "request-1", method_of(SPEC).begin())
    return store


def test_a_new_store_has_the_present_version(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "er" / "store.db")
    assert store.connection.execute("PRAGMA user_version").fetchone() == (VERSION,)
    store.close()


def test_a_store_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with_run(path).close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
    before = path.read_bytes()
    with pytest.raises(BadInput, match=f"newer version .store version {VERSION + 1}, this software knows {VERSION}"):
        Store(path)
    assert path.read_bytes() == before


def test_two_aggregators_cannot_use_one_store(tmp_path: Path) -> None:
    first = Store(tmp_path / "store.db")
    with pytest.raises(BadInput, match="in use by another aggregator"):
        Store(tmp_path / "store.db")
    first.close()
    Store(tmp_path / "store.db").close()


@pytest.mark.slow
def test_a_store_locked_by_another_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    with_run(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(BadInput, match="in use by another process"):
        Store(path)
    other.execute("ROLLBACK")
    other.close()
    Store(path).close()


@pytest.mark.parametrize("content", [b"this is not a database at all" * 100, os.urandom(4096)])
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="damaged or is not a store") as caught:
        Store(path)
    assert "backup" in caught.value.hint
    assert path.read_bytes() == content


async def read_everything(path: Path) -> None:
    """As the service does when it starts."""
    store = Store(path)
    try:
        await StoreThread(store, Signer(lambda data: data, b""), "test").do(load_runs)
    finally:
        store.close()


def test_a_damaged_page_is_told_and_not_made_worse(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with_run(path).close()
    content = bytearray(path.read_bytes())
    for place in range(4096, len(content), 7):
        content[place] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(BadInput, match="damaged or is not a store"):
        asyncio.run(read_everything(path))
    assert path.read_bytes()[4096:] == bytes(content)[4096:]


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be opened"):
        Store(tmp_path / "file" / "store.db")


def test_a_full_disk_refuses_the_write_whole_and_keeps_what_was_there(tmp_path: Path) -> None:
    store = with_run(tmp_path / "store.db")
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 3}")
    machine = Machine(SPEC).enrol("ann")
    event = events.Responded(at=2.0, participant="ann", accept=True, reasons=("x" * (1 << 20),))
    too_much = Commit(run=machine.run, seq=1, events=[event])
    with pytest.raises(StoreFailed, match="the disk is full"):
        store.commit(too_much)
    (stored,) = load_runs(store)
    assert (stored.seq, stored.run.enrolled) == (0, {})
    store.connection.execute("PRAGMA max_page_count = 1000000")
    store.commit(too_much)
    (stored,) = load_runs(store)
    assert list(stored.run.enrolled) == ["ann"]
    store.close()


def test_health_sees_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    store = with_run(tmp_path / "store.db")
    store.check_writable()
    store.connection.execute("PRAGMA query_only = 1")
    with pytest.raises(BadInput, match="cannot be written"):
        store.check_writable()
    store.close()


def test_a_backup_taken_while_the_service_runs_continues_every_run(tmp_path: Path) -> None:
    store = with_run(tmp_path / "store.db")
    machine = Machine(SPEC).enrol("ann")
    store.commit(Commit(run=machine.run, seq=1, events=[events.Responded(at=0.0, participant="ann", accept=True)]))
    config = tmp_path / "aggregator.toml"
    config.write_text('[server]\nca = "c"\ncert = "c"\nkey = "k"\n[store]\npath = "store.db"\n')
    done = CliRunner().invoke(app, ["backup", "--config", str(config), "--out", str(tmp_path / "copy.db")])
    assert done.exit_code == 0, done.output
    store.close()
    restored = Store(tmp_path / "copy.db")
    (stored,) = load_runs(restored)
    assert stored.run.enrolled == machine.run.enrolled
    restored.close()
    again = CliRunner().invoke(app, ["backup", "--config", str(config), "--out", str(tmp_path / "copy.db")])
    assert "nothing is overwritten" in str(getattr(again.exception, "hint", ""))

"""Stores of earlier versions, kept as SQL, opened by today's code: served, or paused with what to do; never failed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from aggregator.run.state import Run, Status
from aggregator.store.database import VERSION, explained
from aggregator.store.examination import examine
from aggregator.store.run_rows import HeldRun, StoredRun
from aggregator.store.store import Store
from dcfpca.errors import UnusableState
from dcfpca.method_formats import memory_format
from dcfpca.methods import method_of
from tests.support.rules import spec_of

KEPT = Path(__file__).parents[3] / "vectors" / "kept"
SPEC = spec_of()


def kept(version: int, path: Path) -> Path:
    with sqlite3.connect(path) as db:
        db.executescript((KEPT / f"aggregator-store-{version}.sql").read_text())
    db.close()
    return path


def test_every_version_but_the_present_one_is_kept() -> None:
    assert {path.name for path in KEPT.glob("aggregator-*")} == {
        f"aggregator-store-{version}.sql" for version in range(1, VERSION)
    }


def test_version_1_is_upgraded_its_finished_run_served_and_its_open_one_paused(tmp_path: Path) -> None:
    store = Store(kept(1, tmp_path / "store.db"))
    held, over = store.read_runs()
    assert isinstance(held, HeldRun)
    assert isinstance(over, StoredRun)
    assert (held.run_id, held.status) == ("open", "paused")
    assert "format" in held.reason
    assert "run an earlier version to continue it" in held.hint
    assert over.run.status is Status.FINISHED
    assert len(store.round_views("over")) == 1
    findings = examine(store.connection)
    assert (findings.runs, findings.file, findings.damaged, len(findings.unknown)) == (2, (), (), 1)
    store.close()


def test_a_run_whose_memory_has_another_format_is_paused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store.db")
    run = Run(run_id="r1", created_at=1.0, status=Status.RUNNING)
    store.create_run(run, SPEC.canonical(), "request-1", method_of(SPEC).begin())
    monkeypatch.setattr("aggregator.store.run_rows.memory_format", lambda spec: "subspace/2")
    (held,) = store.read_runs()
    assert isinstance(held, HeldRun)
    assert held.status == "paused"
    assert memory_format(SPEC) in held.reason
    assert "subspace/2" in held.reason
    monkeypatch.undo()
    (served,) = store.read_runs()
    assert isinstance(served, StoredRun)
    store.close()


def test_a_state_that_this_software_cannot_read_is_paused_and_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store.db")
    store.create_run(Run(run_id="r1", created_at=1.0), SPEC.canonical(), "request-1", method_of(SPEC).begin())
    monkeypatch.setattr("aggregator.store.run_rows.load_run", lambda *_: 1 // 0)
    (held,) = store.read_runs()
    assert isinstance(held, HeldRun)
    assert held.status == "paused"
    assert "cannot read it" in held.reason
    store.close()


def test_a_store_that_lacks_a_column_says_what_to_install(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Store(path).close()
    store = Store(path)
    store.connection.execute("ALTER TABLE rounds RENAME COLUMN view TO picture")
    with pytest.raises(sqlite3.OperationalError) as caught:
        store.round_views("r1")
    store.close()
    told = explained(caught.value)
    assert isinstance(told, UnusableState)
    assert "not laid out as this software expects" in str(told)
    assert "install the version that wrote it" in told.hint

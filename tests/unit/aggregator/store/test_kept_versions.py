"""Stores of earlier versions, kept as SQL, opened by today's code: served, or paused with what to do; never failed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from aggregator.run.state import Attempt, Phase, Run, Status
from aggregator.store.codec import dump_run
from aggregator.store.database import VERSION, explained, row_checksum
from aggregator.store.examination import examine
from aggregator.store.run_rows import HeldRun, StoredRun
from aggregator.store.store import Store
from dcfpca.errors import UnusableState
from dcfpca.method_memory import memory_format
from dcfpca.methods import method_of
from dcfpca.run_references import AttemptRef
from tests.support.runs.rules import spec_of
from tests.support.runs.stored_runs import read_runs, round_views

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
    held, over = read_runs(store)
    assert isinstance(held, HeldRun)
    assert isinstance(over, StoredRun)
    assert (held.run_id, held.status) == ("open", "paused")
    assert "format" in held.reason
    assert "run what wrote it, an earlier version, to finish it" in held.hint
    assert over.run.status is Status.FINISHED
    assert len(round_views(store, "over")) == 1
    findings = examine(store.connection)
    assert (findings.runs, findings.file, findings.damaged, len(findings.unknown)) == (2, (), (), 1)
    store.close()


def test_a_run_whose_memory_has_another_format_is_paused_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store.db")
    run = Run(run_id="r1", created_at=1.0, status=Status.RUNNING)
    store.create_run(run, SPEC.canonical(), "request-1", method_of(SPEC).begin())
    monkeypatch.setattr("aggregator.store.run_rows.memory_format", lambda spec: "subspace/3")
    (held,) = read_runs(store)
    assert isinstance(held, HeldRun)
    assert held.status == "paused"
    assert memory_format(SPEC) in held.reason
    assert "subspace/3" in held.reason
    monkeypatch.undo()
    (served,) = read_runs(store)
    assert isinstance(served, StoredRun)
    store.close()


def test_a_state_that_this_software_cannot_read_is_paused_and_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store.db")
    store.create_run(Run(run_id="r1", created_at=1.0), SPEC.canonical(), "request-1", method_of(SPEC).begin())
    monkeypatch.setattr("aggregator.store.run_rows.load_run", lambda *_: 1 // 0)
    (held,) = read_runs(store)
    assert isinstance(held, HeldRun)
    assert held.status == "paused"
    assert "cannot read it" in held.reason
    store.close()


def test_an_open_run_of_the_sum_that_went_on_without_members_is_held_and_a_finished_one_served(tmp_path: Path) -> None:
    """As an earlier build wrote them: their specs have keys that are gone, and the open one events that are."""
    store = Store(tmp_path / "store.db")
    secure = spec_of(aggregation="secure")
    kept_spec = json.dumps(json.loads(secure.canonical()) | {"dropouts": "go-on", "threshold": 0.5}).encode()
    attempt = Attempt(ref=AttemptRef("open", 2, 1), first_attempt=1, phase=Phase.UPLOADING, opened_at=1.0)
    runs = (
        Run(run_id="open", created_at=1.0, status=Status.RUNNING, cohort=("ann", "bob"), attempt=attempt),
        Run(run_id="over", created_at=2.0, status=Status.FINISHED, cohort=("ann", "bob")),
    )
    for run in runs:
        store.create_run(run, secure.canonical(), run.run_id, method_of(secure).begin())
        row = (run.run_id, run.run_id, kept_spec, run.created_at, memory_format(secure))
        change = "UPDATE runs SET spec = ?, checksum = ? WHERE run_id = ?"
        store.connection.execute(change, (kept_spec, row_checksum(*row), run.run_id))
    state = json.loads(dump_run(runs[0]))
    state["round"] |= {"phase": "unmasking", "keys": {}, "reveals": {}}
    stored = (json.dumps(state).encode(), 0, "0.2.0")
    change = "UPDATE runs SET state = ?, state_seq = ?, software = ?, state_checksum = ? WHERE run_id = 'open'"
    store.connection.execute(change, (*stored, row_checksum("open", *stored)))
    held, over = read_runs(store)
    assert isinstance(held, HeldRun)
    assert held.status == "paused"
    assert "go on without members that drop out" in held.reason
    assert "delete it" in held.hint
    assert isinstance(over, StoredRun)
    assert over.terms.spec == secure
    store.close()


def test_a_store_that_lacks_a_column_says_what_to_install(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Store(path).close()
    store = Store(path)
    store.connection.execute("ALTER TABLE rounds RENAME COLUMN view TO picture")
    with pytest.raises(sqlite3.OperationalError) as caught:
        round_views(store, "r1")
    store.close()
    told = explained(caught.value)
    assert isinstance(told, UnusableState)
    assert "not laid out as this software expects" in str(told)
    assert "install the version that wrote it" in told.hint

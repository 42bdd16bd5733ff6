"""The state of a site written by other versions, and on a damaged disk: told with what to do, and never guessed."""

from __future__ import annotations

import io
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from dcfpca import logs
from dcfpca.errors import UnusableState
from dcfpca.method_memory import snapshot_format
from dcfpca.spec import RunSpec
from participant.session import Consent
from participant.session.events import LocalStep
from participant.state.database import DATABASE, VERSION
from participant.state.directory import unusable_state
from participant.state.ledger import verify
from participant.state.store import Store

KEPT = Path(__file__).parents[3] / "vectors" / "kept"
SPEC = RunSpec(rows=5, rank=2)


def kept(version: int, directory: Path) -> Path:
    directory.mkdir()
    with sqlite3.connect(directory / DATABASE) as db:
        db.executescript((KEPT / f"site-state-{version}.sql").read_text())
    db.close()
    return directory


def with_step(directory: Path) -> Store:
    store = Store(directory)
    store.save_consent("run-1", Consent(SPEC, SPEC.digest(), True, (), False), 1)
    step = LocalStep(3, b"c" * 32, np.arange(3.0), {"V": np.arange(2.0)})
    store.steps.save("run-1", step, snapshot_format(SPEC), durable=False)
    return store


def test_every_version_but_the_present_one_is_kept() -> None:
    assert {path.name for path in KEPT.glob("site-*")} == {f"site-state-{number}.sql" for number in range(1, VERSION)}


def test_version_1_is_upgraded_and_its_open_run_sits_out_with_what_to_do(tmp_path: Path) -> None:
    store = Store(kept(1, tmp_path / "state"))
    assert [row.run_id for row in store.runs()] == ["run-1"]
    with pytest.raises(UnusableState, match="the state of run run-1 has the format") as caught:
        store.step("run-1")
    assert "install the version that wrote it" in caught.value.hint
    store.close()


def test_version_2_is_upgraded_and_the_seeds_of_runs_that_went_on_without_members_are_gone(tmp_path: Path) -> None:
    directory = kept(2, tmp_path / "state")
    store = Store(directory)
    rows = {row.run_id: row for row in store.runs()}
    assert {name: row.status for name, row in rows.items()} == {
        "over": "finished",
        "goes-on": "enrolled",
        "waits": "enrolled",
    }
    for row in rows.values():
        assert row.consent is not None
        assert row.consent.digest == row.digest
    assert store.inbox("goes-on") == []
    assert store.past_runs("waits")[0].run == "over"
    verify(list(store.ledger.entries()))
    store.close()
    assert b"s" * 32 not in b"".join(path.read_bytes() for path in directory.iterdir())


def test_a_file_without_the_newer_columns_gets_them(tmp_path: Path) -> None:
    directory = kept(1, tmp_path / "state")
    with sqlite3.connect(directory / DATABASE) as db:
        assert "cohort" not in {row[1] for row in db.execute("PRAGMA table_info(runs)")}
    db.close()
    store = Store(directory)
    assert [row.cohort for row in store.runs()] == [()]
    store.close()


def test_a_snapshot_of_another_format_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_step(tmp_path / "state")
    monkeypatch.setattr("participant.state.store.snapshot_format", lambda spec: "subspace/9 closing")
    with pytest.raises(UnusableState, match="'subspace/5 closing', and this software continues 'subspace/9 closing'"):
        store.step("run-1")
    monkeypatch.undo()
    assert store.step("run-1") is not None
    store.close()


def test_a_damaged_step_file_is_logged(tmp_path: Path) -> None:
    store = with_step(tmp_path / "state")
    (path,) = (tmp_path / "state").glob("*.step")
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    told = io.StringIO()
    logs.setup("json", "info", told)
    assert store.step("run-1") is None
    line = json.loads(told.getvalue())
    assert (line["action"], line["run"]) == ("step_file_damaged", "run-1")
    store.close()


def test_no_hint_about_a_damaged_state_tells_to_restore_a_backup_of_it(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"no database at all, but long enough to be looked at" * 40)
    with pytest.raises(UnusableState) as caught:
        Store(tmp_path)
    assert "start with an empty one" in caught.value.hint
    assert "never put back an old copy" in caught.value.hint


def test_a_missing_column_is_not_called_a_full_disk(tmp_path: Path) -> None:
    with sqlite3.connect(":memory:") as db, pytest.raises(sqlite3.OperationalError) as caught:
        db.execute("SELECT cohort FROM runs")
    db.close()
    told = unusable_state(tmp_path, caught.value)
    assert "install the version" in told.hint
    assert "space" not in told.hint

"""A store of an earlier version is led to the present one by its scripts, or left as it was."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from aggregator.store import database
from aggregator.store.database import VERSION, open_database
from dcfpca.errors import DcfpcaError


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Software one version on: its only new file is the script that leads there."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    monkeypatch.setattr(database, "VERSION", VERSION + 1)
    monkeypatch.setattr("aggregator.store.database.resources.files", lambda _: scripts)
    return scripts / f"upgrade-{VERSION + 1}.sql"


def store_with_a_row(path: Path) -> None:
    made = open_database(path)
    made.execute("INSERT INTO runs VALUES ('r1', 'q1', x'00', 0, '', 0, x'00', 0, '', 0)")
    made.close()


def test_an_older_store_is_upgraded_and_keeps_what_it_has(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "store.db"
    store_with_a_row(path)
    script: Path = request.getfixturevalue("next_version")
    script.write_text("-- What the next version needs.\nALTER TABLE runs ADD COLUMN colour TEXT DEFAULT 'red';\n")
    upgraded = open_database(path)
    assert upgraded.execute("SELECT run_id, colour FROM runs").fetchall() == [("r1", "red")]
    assert upgraded.execute("PRAGMA user_version").fetchone() == (VERSION + 1,)
    upgraded.close()


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / "store.db"
    store_with_a_row(path)
    script: Path = request.getfixturevalue("next_version")
    script.write_text("ALTER TABLE runs ADD COLUMN colour TEXT;\nALTER TABLE nowhere ADD COLUMN x TEXT;\n")
    with pytest.raises(DcfpcaError):
        open_database(path)
    with sqlite3.connect(path) as left:
        assert left.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert "colour" not in {row[1] for row in left.execute("PRAGMA table_info(runs)")}
    left.close()

"""What a daemon does at its start, before it is connected."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from dcfpca.spec import RunSpec
from participant import daemon
from participant.daemon import Daemon
from participant.session import Consent
from participant.state.store import RunRow, Store
from tests.support.runs.columns import column_set


def test_the_accountant_of_an_open_private_run_is_loaded_off_the_event_loop_before_the_run_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "state", tmp_path / "results")
    spec = RunSpec.model_validate({"rows": 5, "rank": 2, "privacy": {"epsilon": 1.0}})
    store.save_joining("run-1", Consent(spec, spec.digest(), True, (), False), column_set(5), "column", 1)
    done: list[tuple[str, bool]] = []

    def note(what: str) -> None:
        done.append((what, threading.current_thread() is threading.main_thread()))

    def load(asked: RunSpec) -> None:
        assert asked == spec
        note("accountant")

    def restore_run(_: Daemon, row: RunRow) -> None:
        note(row.run_id)

    monkeypatch.setattr(daemon, "load_accountant", load)
    monkeypatch.setattr(Daemon, "_restore_run", restore_run)
    restarted = object.__new__(Daemon)  # neither connected nor with data
    restarted._store = store
    asyncio.run(restarted._restore())
    assert done == [("accountant", False), ("run-1", True)]
    store.close()

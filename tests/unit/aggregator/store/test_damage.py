"""Damage to real store files: the damaged run is held, the others are served, and no flipped bit passes unnoticed."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from aggregator.main import app
from aggregator.participant_directory import ParticipantDirectory
from aggregator.run import events
from aggregator.run.state import Run
from aggregator.run_registry import RunRegistry
from aggregator.store import audit
from aggregator.store.audit import Signer
from aggregator.store.codec import dump_consensus
from aggregator.store.examination import examine
from aggregator.store.run_rows import HeldRun, StoredRun, run_ids
from aggregator.store.store import Commit, Store, mark_file
from aggregator.store.thread import StoreThread
from dcfpca.errors import DcfpcaError, UnusableState
from dcfpca.methods import method_of
from dcfpca.v1.admin_pb2 import RoundView
from tests.support.runs.rules import Machine, spec_of
from tests.support.runs.stored_runs import read_runs, round_views

SPEC = spec_of()
SIGNER = Signer(lambda data: data, b"certificate")
FLIPS = 300


def filled(path: Path, runs: int = 4) -> None:
    """A store with runs, a journal, finished rounds and an audit log."""
    store = Store(path)
    for number in range(runs):
        run_id = f"r{number}"
        begin = method_of(SPEC).begin()
        store.create_run(Run(run_id=run_id, created_at=float(number)), SPEC.canonical(), f"request-{number}", begin)
        run = Machine(SPEC).enrol("ann").run
        answered = events.Responded(at=0.0, participant="ann", accept=True)
        view = RoundView(round=0, seconds=1.5, singular_values=np.arange(40.0).tolist())
        store.commit(
            Commit(
                run=Run(run_id=run_id, created_at=float(number), enrolled=run.enrolled),
                seq=1,
                events=[answered],
                round_view=(0, view.SerializeToString()),
            )
        )
        detail = {"number": number}
        audit.append(store.connection, SIGNER, at_ms=number, actor="a", action="b", run_id=run_id, detail=detail)
    store.close()


def content(store: Store) -> list[object]:
    """Everything that the store answers about its runs; raises or holds a run where it is damaged."""
    found: list[object] = []
    for one in read_runs(store):
        assert isinstance(one, StoredRun)
        assert one.consensus is not None
        views = round_views(store, one.run.run_id)
        found.append((one.spec_bytes, one.run, one.seq, dump_consensus(one.consensus), views))
    for entry in audit.entries(store.connection):
        # Whoever reads the log verifies the signatures (`dcfpca run audit --verify`); the store cannot.
        entry.ClearField("signature")
        found.append(entry.SerializeToString())
    return found


def read(path: Path) -> list[object] | None:
    """What the store answers; None when it says in any way that it is damaged."""
    try:
        store = Store(path)
    except DcfpcaError:
        return None
    try:
        if store.damage or examine(store.connection).file:
            return None
        if any(isinstance(one, HeldRun) for one in read_runs(store)):
            return None
        return content(store)
    except (DcfpcaError, sqlite3.DatabaseError):
        return None
    finally:
        store.close()


@pytest.mark.slow
def test_no_flipped_bit_changes_an_answer_unnoticed(tmp_path: Path) -> None:
    sound, hurt = tmp_path / "store.db", tmp_path / "hurt" / "store.db"
    filled(sound)
    hurt.parent.mkdir()
    shutil.copy(sound, hurt)
    wanted = read(hurt)
    assert wanted
    body, draw, noticed = sound.read_bytes(), random.Random(22), 0
    for _ in range(FLIPS):
        wrong = bytearray(body)
        place = draw.randrange(len(wrong))
        wrong[place] ^= 1 << draw.randrange(8)
        for old in hurt.parent.iterdir():
            old.unlink()
        hurt.write_bytes(wrong)
        found = read(hurt)
        assert found in (None, wanted), f"byte {place}"
        noticed += found is None
    assert noticed > FLIPS // 10


def flip_in(path: Path, table: str, column: str, run_id: str) -> None:
    """Flip one bit of a stored value, as a failing disk would: SQLite's own structures stay sound."""
    with sqlite3.connect(path) as db:
        (value,) = db.execute(f"SELECT {column} FROM {table} WHERE run_id = ?", (run_id,)).fetchone()
        wrong = bytearray(value)
        wrong[len(wrong) // 2] ^= 1
        db.execute(f"UPDATE {table} SET {column} = ? WHERE run_id = ?", (bytes(wrong), run_id))
    db.close()


@pytest.mark.parametrize(
    ("table", "column"), [("runs", "spec"), ("runs", "state"), ("events", "body"), ("consensus", "body")]
)
def test_one_damaged_run_is_held_and_the_others_are_served(tmp_path: Path, table: str, column: str) -> None:
    path = tmp_path / "store.db"
    filled(path)
    flip_in(path, table, column, "r1")

    async def start() -> tuple[list[str], dict[str, HeldRun]]:
        thread = StoreThread(Store(path), SIGNER, "test")
        registry = RunRegistry(thread, ParticipantDirectory(thread))
        await registry.start()
        await registry.stop()
        thread.close()
        return list(registry.runners), registry.held

    served, held = asyncio.run(start())
    assert served == ["r0", "r2", "r3"]
    assert held["r1"].status == "damaged"
    assert "not what was written" in held["r1"].reason


def test_damaged_round_views_are_told_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path)
    flip_in(path, "rounds", "view", "r2")
    store = Store(path)
    assert round_views(store, "r1")
    with pytest.raises(UnusableState, match="round 0 of run r2 is not what was written"):
        round_views(store, "r2")
    assert examine(store.connection).damaged[0].startswith("run r2")
    store.close()


def test_a_damaged_run_can_be_deleted_and_then_the_store_is_sound(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path)
    flip_in(path, "consensus", "body", "r1")
    store = Store(path)
    store.delete_run("r1")
    findings = examine(store.connection)
    assert (findings.runs, findings.file, findings.damaged) == (3, (), ())
    assert len(audit.entries(store.connection)) == 4
    store.close()


def backed_up(directory: Path) -> tuple[int, str]:
    config = directory / "aggregator.toml"
    config.write_text('[server]\nca = "c"\ncert = "c"\nkey = "k"\n[store]\npath = "store.db"\n')
    done = CliRunner().invoke(app, ["backup", "--config", str(config), "--out", str(directory / "copy.db")])
    return done.exit_code, str(done.exception or done.output)


def test_a_backup_of_a_damaged_run_is_made_and_says_so(tmp_path: Path) -> None:
    filled(tmp_path / "store.db")
    flip_in(tmp_path / "store.db", "runs", "state", "r3")
    code, told = backed_up(tmp_path)
    assert code
    assert "run r3" in told
    assert (tmp_path / "copy.db").exists()


def test_a_backup_of_a_damaged_file_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path)
    body = bytearray(path.read_bytes())
    body[-4096:] = b"\xff" * 4096
    path.write_bytes(body)
    code, told = backed_up(tmp_path)
    assert code
    assert "damaged" in told
    assert sorted(one.name for one in tmp_path.iterdir() if "copy" in one.name) == []


@pytest.mark.parametrize("deleted", ["store.db-wal", "store.db"])
def test_a_store_whose_log_or_file_was_deleted_after_a_crash_is_refused(tmp_path: Path, deleted: str) -> None:
    live, path = tmp_path / "store.db", tmp_path / "crashed" / "store.db"
    path.parent.mkdir()
    store = Store(live)
    store.create_run(Run(run_id="r1", created_at=1.0), SPEC.canonical(), "request-1", method_of(SPEC).begin())
    for left in ("store.db", "store.db-wal", "store.db.open"):
        shutil.copy(tmp_path / left, path.with_name(left))
    store.close()
    (path.parent / deleted).unlink()
    (path.parent / "store.db-wal").unlink(missing_ok=True)
    with pytest.raises(UnusableState, match="was not closed, and"):
        Store(path)
    assert mark_file(path).exists()


def test_a_backup_restored_over_a_crashed_store_is_not_taken_for_one_without_its_log(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = Store(path)
    store.create_run(Run(run_id="r1", created_at=1.0), SPEC.canonical(), "request-1", method_of(SPEC).begin())
    assert backed_up(tmp_path)[0] == 0
    mark = mark_file(path).read_bytes()
    store.close()
    mark_file(path).write_bytes(mark)
    shutil.copy(tmp_path / "copy.db", path)
    restored = Store(path)
    assert run_ids(restored.connection) == ["r1"]
    restored.close()


def test_an_empty_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    with pytest.raises(UnusableState, match="is an empty file"):
        Store(tmp_path / "store.db")
    assert (tmp_path / "store.db").read_bytes() == b""


def test_the_store_is_readable_by_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    filled(path)
    path.chmod(0o644)
    store = Store(path)
    store.check_writable()
    files = [path, tmp_path / "store.db-wal", tmp_path / "store.db-shm", tmp_path / "store.db.lock"]
    assert [one.stat().st_mode & 0o777 for one in files] == [0o600] * 4
    store.close()

"""A store on a disk of three megabytes, and on one that is full: its own log never fills it, and it recovers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from aggregator.main import app
from aggregator.run.state import Run, Status
from aggregator.store.database import LOG_BYTES, StoreFailed, log_file
from aggregator.store.store import Commit, Store
from dcfpca.methods import method_of
from dcfpca.rpca.method import Consensus, TensorMessage
from tests.support.runs.rules import spec_of
from tests.support.runs.stored_runs import round_views
from tests.support.surroundings.small_disk import fill, small_disk

SPEC = spec_of()
CONSENSUS_BYTES = 100 << 10


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 3) as directory:
        yield directory


def consensus(round: int) -> Consensus:
    tensor = np.random.default_rng(round).standard_normal((CONSENSUS_BYTES // 8, 1))
    return Consensus(round, "fit", TensorMessage(tensor, np.zeros(0)))


def round_of(store: Store, round: int, status: Status = Status.RUNNING) -> None:
    """What the store writes at the end of a round."""
    run = Run(run_id="r1", created_at=1.0, status=status)
    store.commit(
        Commit(
            run=run, seq=round, events=(), checkpoint=True, consensus=consensus(round), round_view=(round, b"v" * 500)
        )
    )


def rounds_of(store: Store, first: int, last: int) -> None:
    for round in range(first, last):
        round_of(store, round)


def with_run(path: Path) -> Store:
    store = Store(path)
    store.create_run(Run(run_id="r1", created_at=1.0), SPEC.canonical(), "request-1", method_of(SPEC).begin())
    return store


@pytest.mark.root
def test_a_long_run_fits_on_a_disk_of_three_megabytes(disk: Path) -> None:
    store = with_run(disk / "store.db")
    rounds_of(store, 1, 300)
    assert len(round_views(store, "r1")) == 299
    store.close()


@pytest.mark.root
def test_a_full_disk_is_left_as_soon_as_there_is_space(disk: Path) -> None:
    store = with_run(disk / "store.db")
    round_of(store, 1)
    ballast = fill(disk)
    with pytest.raises(StoreFailed, match="disk is full"):
        rounds_of(store, 2, 40)
    with pytest.raises(StoreFailed, match="disk is full"):
        store.check_writable()
    ballast.unlink()
    store.check_writable()
    round_of(store, 40)
    assert round_views(store, "r1")[-1] == b"v" * 500
    store.close()


@pytest.mark.root
def test_a_store_that_cannot_be_opened_on_a_full_disk_says_that_the_disk_is_full(disk: Path) -> None:
    store = with_run(disk / "store.db")
    round_of(store, 1)
    store.close()
    ballast = fill(disk)
    with pytest.raises(StoreFailed, match=r"disk is full|No space left"):
        Store(disk / "store.db")
    ballast.unlink()
    again = Store(disk / "store.db")
    assert len(round_views(again, "r1")) == 1
    again.close()


@pytest.mark.root
def test_a_backup_onto_a_full_disk_is_one_sentence_and_leaves_nothing(disk: Path, tmp_path: Path) -> None:
    store = with_run(tmp_path / "store.db")
    config = tmp_path / "aggregator.toml"
    config.write_text('[server]\nca = "c"\ncert = "c"\nkey = "k"\n[store]\npath = "store.db"\n')
    ballast = fill(disk)
    command = ["backup", "--config", str(config), "--out", str(disk / "copy.db")]
    full = CliRunner().invoke(app, command)
    assert "the disk is full" in str(full.exception)
    assert list(disk.iterdir()) == [ballast]
    ballast.unlink()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert [(one.name, one.stat().st_mode & 0o777) for one in disk.iterdir()] == [("copy.db", 0o600)]
    store.close()


def test_the_log_is_folded_at_the_end_of_a_run_and_stays_small(tmp_path: Path) -> None:
    store = with_run(tmp_path / "store.db")
    for round in range(1, 60):
        round_of(store, round)
        assert log_file(store.path).stat().st_size <= 2 * LOG_BYTES + CONSENSUS_BYTES
    round_of(store, 60, Status.FINISHED)
    assert log_file(store.path).stat().st_size == 0
    store.close()


def test_the_health_probe_of_an_idle_store_writes_nothing(tmp_path: Path) -> None:
    store = with_run(tmp_path / "store.db")
    before = (store.path.read_bytes(), log_file(store.path).read_bytes())
    for _ in range(30):
        store.check_writable()
    assert (store.path.read_bytes(), log_file(store.path).read_bytes()) == before
    store.close()


def test_the_directory_of_a_run_goes_with_its_end(tmp_path: Path) -> None:
    store = with_run(tmp_path / "store.db")
    (tmp_path / "store.db.updates" / "r1" / "3.1").mkdir(parents=True)
    round_of(store, 3, Status.FINISHED)
    assert list((tmp_path / "store.db.updates").iterdir()) == []
    store.close()

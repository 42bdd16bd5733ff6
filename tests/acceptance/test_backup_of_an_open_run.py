"""A backup made while a run goes on, restored after the sites have moved on: the run goes on beyond them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aggregator.main import app
from dcfpca.rpca.synthetic import Recipe, generate
from tests.support.services.federation import Federation, relative, running_federation

NAMES = ("alpha", "beta", "gamma")
SPEC: dict[str, Any] = {
    "rank": 2,
    "participants": NAMES,
    "quorum": 3,
    "round_seconds": 24.0,
    "closing_rounds": False,
}


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    problem = generate(Recipe(rows=24, columns=33, rank=2, sparsity=0.05, noise=0.05, counts=(14, 10, 9)), 3)
    sites = {name: own.array for name, own in zip(NAMES, problem.sites(), strict=True)}
    with running_federation(tmp_path, sites, allow_plain=True) as made:
        yield made


def back_up(federation: Federation) -> Path:
    """Copy the store of the aggregator that runs."""
    copy = federation.root / "copy.db"
    config = federation.root / "aggregator.toml"
    done = CliRunner().invoke(app, ["backup", "--config", str(config), "--out", str(copy)])
    assert done.exit_code == 0, done.output
    return copy


def restore(federation: Federation, copy: Path) -> None:
    """The machine is lost with all it had; another one starts from the copy under the same address."""
    federation.aggregator.kill()
    for path in federation.root.glob("store.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    copy.rename(federation.root / "store.db")
    federation.start_aggregator()


@pytest.mark.slow
def test_a_plain_run_goes_on_from_a_backup_that_is_rounds_behind(federation: Federation) -> None:
    run_id = federation.propose(**SPEC, rounds=400, tolerance=1e-9, aggregation="plain")
    federation.aggregator.await_action("consensus_reached", run=run_id, round=5)
    copy = back_up(federation)
    federation.aggregator.await_action("consensus_reached", run=run_id, round=9)
    restore(federation, copy)
    view = federation.finish(run_id)
    rounds = [done.round for done in view.rounds]
    assert rounds == sorted(set(rounds))
    assert len(rounds) < view.round + 1, "the forgotten rounds are not made up for"
    alone = federation.simulate(view, NAMES)
    for name, mine in zip(NAMES, alone.results, strict=True):
        # Another way there, and so another rounding; the same answer.
        assert relative(federation.result(name, run_id).L, mine.L) <= 1e-6


@pytest.mark.slow
def test_a_secure_run_pauses_and_is_finished_with_the_consensus_of_the_backup(federation: Federation) -> None:
    """Its members answer each round once, so that it cannot go on beyond them."""
    run_id = federation.propose(**SPEC, rounds=400, tolerance=0.0)
    federation.aggregator.await_action("consensus_reached", run=run_id, round=5)
    copy = back_up(federation)
    federation.aggregator.await_action("consensus_reached", run=run_id, round=9)
    restore(federation, copy)
    view = federation.follow(run_id)
    assert view.status == "paused"
    assert "restored from a backup" in view.reason
    assert federation.operator.finish(run_id, "restored").status == "finished"
    for name in NAMES:
        assert federation.result(name, run_id).manifest


@pytest.mark.slow
@pytest.mark.parametrize("frames", [1, 4, 12])
def test_a_store_that_lost_the_last_frames_of_its_log_goes_on_or_says_that_it_is_behind(
    federation: Federation, frames: int
) -> None:
    """A power cut on a disk that did not keep its word: what was committed last is gone, and nothing is torn."""
    run_id = federation.propose(**SPEC, rounds=40, tolerance=0.0)
    federation.aggregator.await_action("consensus_reached", run=run_id, round=6)
    federation.aggregator.kill()
    lose_frames(federation.root / "store.db-wal", frames)
    federation.start_aggregator()
    view = federation.follow(run_id)
    if view.status == "paused":
        assert "restored from a backup" in view.reason
        federation.operator.finish(run_id, "the disk lost its log")
    else:
        assert view.status == "finished"
        assert [done.round for done in view.rounds] == list(range(view.round + 1))
        alone = federation.simulate(view, NAMES)
        for name, mine in zip(NAMES, alone.results, strict=True):
            assert relative(federation.result(name, run_id).L, mine.L) <= 1e-10
    for name in NAMES:
        assert federation.result(name, run_id).manifest


def lose_frames(log: Path, frames: int) -> None:
    """Cut so many frames off a write-ahead log: a header of 32 bytes, and of each frame 24 before its page."""
    size = 24 + int.from_bytes(log.read_bytes()[8:12], "big")
    kept = max((log.stat().st_size - 32) // size - frames, 0)
    with log.open("r+b") as file:
        file.truncate(32 + kept * size if kept else 0)


@pytest.mark.slow
def test_a_run_that_the_sites_have_finished_is_not_taken_up_again(federation: Federation) -> None:
    run_id = federation.propose(**SPEC, method="gradient", rounds=12, tolerance=0, aggregation="plain")
    federation.aggregator.await_action("consensus_reached", run=run_id, round=4)
    copy = back_up(federation)
    federation.finish(run_id)
    before = [federation.result(name, run_id).manifest for name in NAMES]
    restore(federation, copy)
    view = federation.follow(run_id)
    assert view.status == "failed"
    assert "over at this site" in view.reason
    assert [federation.result(name, run_id).manifest for name in NAMES] == before

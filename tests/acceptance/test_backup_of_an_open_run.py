"""A backup made while a run goes on, restored after the sites have moved on: the run goes on beyond them."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from aggregator.main import app
from dcfpca.rpca.synthetic import Recipe, generate
from tests.support.services.federation import Federation, relative, running_federation
from tests.support.surroundings.proxy import Proxy

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
    run_id = federation.propose(**SPEC, rounds=200, tolerance=0.0, aggregation="plain")
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


@pytest.fixture(params=[24])
def held(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Federation, Proxy]]:
    """A federation of which one site is reached by a proxy, so that a test can hold its answers back."""
    shape: dict[str, Any] = {"rows": request.param, "columns": 33, "rank": 2, "counts": (14, 10, 9)}
    problem = generate(Recipe(**shape, sparsity=0.05, noise=0.05), 3)
    with Federation(tmp_path) as made:
        made.start_aggregator()
        with closing(Proxy(made.address)) as proxy:
            for name, own in zip(NAMES, problem.sites(), strict=True):
                made.add_site(name, own.array, via=proxy.address if name == "gamma" else "")
            made.start_sites(NAMES)
            yield made, proxy


def restored_rounds_behind(federation: Federation, proxy: Proxy, *, without: str = "", **spec: Any) -> str:
    """A run whose aggregator is restored from a copy that is three rounds or more behind what every site was told."""
    run_id = federation.propose(**SPEC | spec)
    federation.aggregator.await_action("consensus_reached", run=run_id, round=5)
    copy, made = back_up(federation), latest(federation, "agg", "consensus_reached", run_id)
    federation.aggregator.await_line(
        lambda line: line.get("run") == run_id and line["action"] == "consensus_reached" and line["round"] > made + 2
    )
    proxy.stall()
    end = time.monotonic() + 60
    while {latest(federation, name, "step_computed", run_id) - 1 for name in NAMES} != {
        latest(federation, "agg", "consensus_reached", run_id)
    }:
        assert time.monotonic() < end, "the run does not stand still"
        time.sleep(0.05)
    if without:
        federation.processes[without].kill()
    restore(federation, copy)
    proxy.cut()
    proxy.heal()
    return run_id


def latest(federation: Federation, name: str, action: str, run_id: str) -> int:
    said = [
        line for line in federation.processes[name].events() if (line["action"], line.get("run")) == (action, run_id)
    ]
    return max((int(line["round"]) for line in said), default=-1)


@pytest.mark.slow
@pytest.mark.parametrize(("held", "rounds"), [(24, 120), (40_000, 30)], indirect=["held"])
def test_a_secure_run_is_brought_forward_by_its_sites_and_ends_as_if_nothing_had_been(
    held: tuple[Federation, Proxy], rounds: int
) -> None:
    """Once with a consensus of 640 kB, which takes a message of its own."""
    federation, proxy = held
    long: dict[str, Any] = {"rounds": rounds, "tolerance": 0.0}
    undisturbed = federation.model(federation.run(**SPEC, **long).run_id)
    run_id = restored_rounds_behind(federation, proxy, **long)
    view = federation.finish(run_id)
    told = [done.round for done in view.rounds]
    assert told == sorted(set(told))
    assert len(told) < view.round + 1, "the forgotten rounds are not told again"
    np.testing.assert_array_equal(federation.model(run_id), undisturbed)
    for name in NAMES:
        assert json.loads(federation.result(name, run_id).manifest)["consensus_verified"]


@pytest.mark.slow
def test_a_secure_run_that_lacks_a_member_pauses_and_is_brought_forward_when_it_comes_back(
    held: tuple[Federation, Proxy],
) -> None:
    """All of the cohort must agree: one that is away may hold something else. It comes back from its disk."""
    federation, proxy = held
    long: dict[str, Any] = {"rounds": 120, "tolerance": 0.0, "round_seconds": 4.0, "patience": 4.0}
    run_id = restored_rounds_behind(federation, proxy, without="beta", **long)
    view = federation.follow(run_id)
    assert view.status == "paused"
    assert "longer than the spec's patience" in view.reason
    federation.start_site("beta")
    federation.aggregator.await_line(lambda line: line["action"] == "consensus_reached")
    view = federation.finish(run_id)
    alone = federation.simulate(view, NAMES)
    for name, mine in zip(NAMES, alone.results, strict=True):
        assert relative(federation.result(name, run_id).L, mine.L) <= 1e-10


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
        rounds = [done.round for done in view.rounds]
        assert rounds == sorted(set(rounds))
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

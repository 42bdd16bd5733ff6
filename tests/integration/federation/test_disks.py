"""Real daemons on full and failing disks: they wait and say so, and go on by themselves when there is space."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.services.federation import Federation, running_federation
from tests.support.surroundings.small_disk import fill, small_disk

NAMES = ("a", "b", "c")
SPEC = {
    "rows": 30,
    "rank": 2,
    "aggregation": "secure",
    "quorum": 2,
    "round_seconds": 30.0,
    "tolerance": 1e-300,
}


def data(name: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    draw = np.random.default_rng(ord(name))
    return np.random.default_rng(1).standard_normal((30, 2)) @ draw.standard_normal((2, 60))


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    home = tmp_path / "sites" / "a"
    with (
        small_disk(home / "state", 8),
        small_disk(home / "results", 8),
        running_federation(tmp_path, {name: data(name) for name in NAMES}) as made,
    ):
        yield made


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(180)
def test_a_site_with_a_full_state_disk_waits_and_goes_on_when_there_is_space(federation: Federation) -> None:
    site = federation.processes["a"]
    run_id = federation.propose(**SPEC, rounds=60)
    federation.aggregator.await_action("consensus_reached", run=run_id, round=3)
    ballast = fill(federation.root / "sites" / "a" / "state")
    # Which write fails first depends on how much of the disk the write-ahead log already holds: that of a local step,
    # and the site can still send its sentence, or that of an assignment, and it can send nothing without its ledger.
    held = site.await_line(lambda line: line["action"] in ("assignment_refused", "state_held_up"))
    assert site.is_alive
    if held["action"] == "assignment_refused":
        site.await_action("run_message_sent", message="Complain")
        said = federation.operator.run(run_id).complaints[-1]
        assert (said.participant, said.error) == ("a", "SiteFailure")
        assert "the disk of this site is full" in said.sentence
    else:
        assert "is full" in held["reason"]
        federation.aggregator.await_action("participant_disconnected", participant="a")
    waiting = len(site.lines)
    ballast.unlink()
    site.await_action("update_sent", after=waiting)
    federation.operator.abort(run_id, "the claim is shown")


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(180)
def test_a_result_that_could_not_be_written_is_written_when_there_is_space(federation: Federation) -> None:
    ballast = fill(federation.root / "sites" / "a" / "results")
    view = federation.run(**SPEC, rounds=8)
    federation.processes["a"].await_action("results_not_written", run=view.run_id)
    ballast.unlink()
    assert federation.result("a", view.run_id).L.shape == (30, 60)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_aggregator_with_one_damaged_run_serves_the_others(tmp_path: Path) -> None:
    with running_federation(tmp_path, {name: data(name) for name in NAMES}) as federation:
        damaged = federation.run(**SPEC, rounds=5).run_id
        sound = federation.run(**SPEC, rounds=5).run_id
        federation.aggregator.stop()
        with sqlite3.connect(tmp_path / "store.db") as db:
            (state,) = db.execute("SELECT state FROM runs WHERE run_id = ?", (damaged,)).fetchone()
            wrong = bytes([state[0] ^ 1]) + state[1:]
            db.execute("UPDATE runs SET state = ? WHERE run_id = ?", (wrong, damaged))
        db.close()
        federation.start_aggregator().await_action("run_held", run=damaged)
        for name in NAMES:
            federation.processes[name].await_action("connected", after=1)
        later = federation.run(**SPEC, rounds=5).run_id
        listed = {view.run_id: view.status for view in federation.operator.runs()}
        assert listed == {damaged: "damaged", sound: "finished", later: "finished"}
        assert "not what was written" in federation.operator.run(damaged).reason

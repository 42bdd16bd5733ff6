"""Participants that hang, and networks that break in the middle of an upload."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dcfpca.rpca.synthetic import Recipe, generate
from dcfpca.wire.constants import CHUNK_BYTES
from tests.support.services.federation import Federation, relative, running_federation
from tests.support.surroundings.proxy import Proxy

NAMES = ("alpha", "beta", "delta", "gamma")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    problem = generate(Recipe(rows=24, columns=40, rank=2, sparsity=0.05, noise=0.05, counts=(10, 10, 10, 10)), 3)
    sites = {name: own.array for name, own in zip(NAMES, problem.sites(), strict=True)}
    with running_federation(tmp_path_factory.mktemp("federation"), sites, allow_plain=True) as made:
        yield made


@pytest.mark.slow
def test_a_hung_participant_is_left_out_and_joins_again_when_it_wakes(federation: Federation) -> None:
    run_id = federation.propose(
        closing_rounds=False,
        aggregation="plain",
        method="gradient",
        rank=2,
        rounds=400,
        tolerance=0,
        participants=NAMES,
        quorum=3,
        round_seconds=6,
    )
    aggregator, hung = federation.aggregator, federation.processes["delta"]
    aggregator.await_action("consensus_reached", run=run_id, round=1)
    hung.signal(signal.SIGSTOP)
    left_out = aggregator.await_line(lambda line: line["action"] == "consensus_reached" and line["survivors"] == 3)
    assert left_out["dropouts"] == ["delta"]
    seen = len(aggregator.lines)
    hung.signal(signal.SIGCONT)
    aggregator.await_line(lambda line: line["action"] == "consensus_reached" and line["survivors"] == 4, after=seen)
    federation.operator.abort(run_id, "seen enough")
    hung.await_action("run_ended", run=run_id)


@pytest.mark.slow
def test_too_few_for_a_quorum_pause_the_run_and_resume_takes_it_up(federation: Federation) -> None:
    run_id = federation.propose(
        closing_rounds=False,
        aggregation="plain",
        method="gradient",
        rank=2,
        rounds=60,
        tolerance=0,
        participants=NAMES,
        quorum=4,
        round_seconds=4,
        max_attempts=2,
    )
    federation.aggregator.await_action("consensus_reached", run=run_id, round=1)
    federation.processes["delta"].kill()
    view = federation.follow(run_id)
    assert view.status == "paused"
    assert "failed in 2 attempts" in view.reason
    assert "delta" in view.reason
    federation.start_site("delta").await_action("connected")
    assert federation.operator.resume(run_id).status == "running"
    done = federation.finish(run_id)
    alone = federation.simulate(done, NAMES)
    assert relative(federation.model(run_id), alone.consensus.broadcast.tensor) <= 1e-10


@pytest.mark.slow
def test_a_site_that_stays_away_is_named_and_the_operator_ends_the_run_with_what_it_has(federation: Federation) -> None:
    run_id = federation.propose(
        closing_rounds=False, rank=2, rounds=500, tolerance=0, participants=NAMES, round_seconds=4, patience=2
    )
    aggregator, others = federation.aggregator, [name for name in NAMES if name != "delta"]
    aggregator.await_action("consensus_reached", run=run_id, round=2)
    federation.processes["delta"].kill()
    view = federation.follow(run_id)
    assert view.status == "paused"
    assert "waits for delta, longer than the spec's patience" in view.reason
    assert [(one.participant, one.connected) for one in view.waiting] == [("delta", False)]
    summed = view.rounds[-1].round
    assert federation.operator.finish(run_id, "delta does not come back").status == "finished"
    for name in others:
        federation.processes[name].await_action("results_written", run=run_id)
    U = federation.model(run_id)
    for name in others:
        written = np.load(federation.root / "sites" / name / "results" / run_id / "U.npy")
        assert relative(written, U) <= 1e-12
    assert {len(one.survivors) for one in view.rounds} == {len(NAMES)}
    assert summed >= 2
    federation.start_site("delta").await_action("results_written", run=run_id)


@pytest.mark.slow
def test_an_upload_cut_in_the_middle_goes_on_where_it_was(tmp_path: Path) -> None:
    """An update of five pieces; the network breaks for good inside it and comes back."""
    rows, rank, names = 160_000, 4, ("alpha", "beta", "gamma")
    size = rows * rank * 8
    draw = np.random.default_rng(7)
    with Federation(tmp_path) as federation:
        federation.start_aggregator()
        proxy = Proxy(federation.address, stall_after=3 * size // 5)
        for name in names:
            data = draw.standard_normal((rows, rank)) @ draw.standard_normal((rank, 6))
            federation.add_site(name, data, via=proxy.address if name == "alpha" else "")
        federation.start_sites(names)
        run_id = federation.propose(
            closing_rounds=False,
            method="gradient",
            rank=rank,
            rounds=1,
            aggregation="plain",
            participants=names,
            quorum=3,
            round_seconds=100,
        )
        assert proxy.stalled.wait(60)
        kept = _await_pieces(federation.root / "store.db.updates", "alpha", 2 * CHUNK_BYTES)
        proxy.cut()
        before = proxy.sent
        proxy.heal()
        view = federation.finish(run_id, 100)
        alone = federation.simulate(view, names)
        assert relative(federation.model(run_id), alone.consensus.broadcast.tensor) <= 1e-12
        # The pieces that had arrived were not sent again; a tenth of a piece is for handshakes and the other calls.
        assert proxy.sent - before < size - kept + CHUNK_BYTES // 10
        proxy.close()


def _await_pieces(spool: Path, name: str, size: int, patience: float = 60) -> int:
    """Wait until the aggregator has kept that much of this participant's update; how much it has."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        kept = sum(path.stat().st_size for path in spool.rglob(f"{name}@*"))
        if kept >= size:
            return kept
        time.sleep(0.02)
    raise AssertionError(f"{size} bytes of {name}'s update did not arrive within {patience} s")

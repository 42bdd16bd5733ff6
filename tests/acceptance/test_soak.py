"""A long run with a process killed at random every few seconds ends right, with files and memory level; many short
runs leave next to nothing in memory.

The long form, 200 rounds: DCFPCA_SOAK_ROUNDS=200 pytest tests/acceptance/test_soak.py --timeout=3600; 1,000 runs:
DCFPCA_SOAK_RUNS=1000
"""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path

import numpy as np
import pytest

from dcfpca.rpca.synthetic import Recipe, generate
from tests.support.services.federation import Federation, relative, running_federation

NAMES = ("alpha", "beta", "gamma")
ROUNDS = int(os.environ.get("DCFPCA_SOAK_ROUNDS", "24"))
RUNS = int(os.environ.get("DCFPCA_SOAK_RUNS", "40"))
GROWTH_KIB = 5 << 10
EVERY = 4 if ROUNDS > 50 else 6


@pytest.mark.slow
@pytest.mark.timeout(3600 if ROUNDS > 50 else 240)
def test_a_long_run_with_random_kills_ends_right_and_level(tmp_path: Path) -> None:
    """A kill every few rounds, of anybody; whoever is not killed for long must not grow."""
    draw = random.Random(ROUNDS)
    problem = generate(Recipe(rows=24, columns=33, rank=2, sparsity=0.05, noise=0.05, counts=(14, 10, 9)), 3)
    with Federation(tmp_path) as federation:
        federation.start_aggregator()
        for name, own in zip(NAMES, problem.sites(), strict=True):
            federation.add_site(name, own.array)
        federation.start_sites(NAMES)
        run_id = federation.propose(
            closing_rounds=False,
            method="gradient",
            rank=2,
            rounds=ROUNDS,
            tolerance=0,
            participants=NAMES,
            quorum=3,
            round_seconds=24,
            max_attempts=100,
        )
        levels: dict[int, list[tuple[int, int]]] = {}
        for round in range(EVERY, ROUNDS, EVERY):
            reached = federation.aggregator
            reached.await_line(lambda line, at=round: line["action"] == "consensus_reached" and line["round"] >= at)  # type: ignore[misc]
            for process in federation.processes.values():
                levels.setdefault(process.pid, []).append((process.descriptors(), process.memory_kib()))
            victim = draw.choice(("agg", *NAMES))
            federation.processes[victim].kill()
            federation.start_aggregator() if victim == "agg" else federation.start_site(victim)
        view = federation.finish(run_id, 3000 if ROUNDS > 50 else 200)
        assert all(list(done.survivors) == list(NAMES) for done in view.rounds)
        alone = federation.simulate(view, NAMES)
        assert relative(federation.model(run_id), alone.consensus.broadcast.tensor) <= 1e-10
        for process in federation.processes.values():
            levels.setdefault(process.pid, []).append((process.descriptors(), process.memory_kib()))
    for seen in levels.values():
        # The first look comes while connections, threads and caches are still being made.
        for (files, memory), (later_files, later_memory) in itertools.pairwise(seen[1:]):
            assert later_files <= files + 8
            assert later_memory <= 1.25 * memory


@pytest.mark.slow
@pytest.mark.timeout(3600 if RUNS > 100 else 120)
def test_after_many_runs_no_service_is_five_mebibytes_larger_than_after_ten(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    with running_federation(tmp_path, {name: draw.standard_normal((6, 24)) for name in NAMES}) as federation:
        sizes = []
        for number in range(1, RUNS + 1):
            federation.run(method="subspace", rank=1, rounds=2, tolerance=0, closing_rounds=False, participants=NAMES)
            if number in (10, RUNS):
                sizes.append([process.memory_kib() for process in federation.processes.values()])
    before, after = sizes
    assert max(np.subtract(after, before)) <= GROWTH_KIB

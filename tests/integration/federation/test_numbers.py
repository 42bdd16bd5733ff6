"""The paper's problem over the network, and tensors of a hundred megabytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dcfpca.rpca.synthetic import paper_problem
from tests.support.services.federation import Federation

SITES = tuple(f"site-{index}" for index in range(5))


@pytest.mark.slow
def test_the_papers_problem_is_solved_to_1e_6_within_40_rounds_over_the_network(tmp_path: Path) -> None:
    problem = paper_problem(500, 25, 0.05, 5, 1)
    settings = {"local_iterations": 5, "learning_rate": 0.2, "lambda_": 0.1}
    with Federation(tmp_path) as federation:
        federation.start_aggregator("info")
        for name, own in zip(SITES, problem.sites(), strict=True):
            federation.add_site(name, own.array)
        federation.start_sites(SITES)
        view = federation.run(
            method="gradient",
            rank=25,
            rounds=40,
            tolerance=0,
            participants=SITES,
            gradient=settings,
            closing_rounds=False,
        )
        assert view.round <= 40
        found = [federation.result(name, view.run_id) for name in SITES]
        L = np.concatenate([result.L for result in found], axis=1)
        S = np.concatenate([result.S.toarray() for result in found], axis=1)
    error = np.sum((L - problem.L) ** 2) + np.sum((S - problem.S) ** 2)
    assert error / (np.sum(problem.L**2) + np.sum(problem.S**2)) <= 1e-6


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_tensors_of_a_hundred_megabytes_go_through(tmp_path: Path) -> None:
    rows, rank, names = 205_000, 64, SITES[:2]
    assert rows * rank * 8 >= 100 * 2**20
    draw = np.random.default_rng(2)
    with Federation(tmp_path) as federation:
        federation.start_aggregator("info")
        for name in names:
            federation.add_site(name, draw.standard_normal((rows, 32)))
        federation.start_sites(names)
        run = federation.propose(
            method="gradient",
            gradient={"local_iterations": 1},
            rank=rank,
            rounds=1,
            closing_rounds=False,
            aggregation="plain",
            participants=names,
            round_seconds=200,
        )
        view = federation.finish(run, 220)
        assert federation.model(view.run_id).shape == (rows, rank)
        assert view.rounds[-1].bytes_received >= 2 * 100 * 2**20

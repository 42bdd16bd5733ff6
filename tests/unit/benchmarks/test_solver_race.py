"""The race of solvers, small."""

from __future__ import annotations

import json

import numpy as np
from typer.testing import CliRunner

from benchmarks.peers.__main__ import app
from benchmarks.peers.solver_race import PeerSolver, baseline_peers, first_iterations, race
from dcfpca.rpca.synthetic import Problem, Recipe, generate


def problem() -> Problem:
    return generate(Recipe(80, 80, 3, 0.05, counts=(40, 40)), 1)


def test_a_peer_that_does_not_get_there_has_no_time() -> None:
    zero = PeerSolver(
        "zero", "nothing", "", lambda count, look: look and look(1, np.zeros((80, 80)), np.zeros((80, 80)))
    )
    lost = [finish for finish in race(problem(), [zero], 1) if finish.solver == "zero"]
    assert [(finish.level, finish.cpu_seconds, finish.iterations) for finish in lost] == [
        ("1e-6", None, None),
        ("1e-10", None, None),
    ]


def test_iterations_are_those_in_which_the_level_is_first_reached() -> None:
    truth = problem()

    def run(count: int, look) -> None:  # type: ignore[no-untyped-def]
        for number, off in enumerate([1.0, 1e-4, 1e-2, 1e-7], start=1):
            look(number, truth.L * (1 + off), truth.S)

    found = first_iterations(PeerSolver("made up", "", "", run), truth)
    assert {level: first.iteration for level, first in found.items()} == {"1e-6": 2, "1e-10": 4}


def test_a_slow_peer_runs_once_and_is_timed_while_it_is_looked_at() -> None:
    truth, runs = problem(), []

    def run(count: int, look) -> None:  # type: ignore[no-untyped-def]
        runs.append(count)
        look(1, truth.L, truth.S)

    slow = PeerSolver("made up", "", "", run, slow=True)
    finishes = [finish for finish in race(truth, [slow], 3) if finish.solver == "made up"]
    assert len(runs) == 1
    assert [(finish.iterations, (finish.cpu_seconds or -1.0) >= 0.0) for finish in finishes] == [(1, True)] * 2


def test_every_solver_has_one_row_per_level_and_time_where_it_gets_there() -> None:
    finishes = list(race(problem(), baseline_peers(problem()), 1))
    assert sorted(finish.level for finish in finishes if finish.solver == "IRCUR") == ["1e-10", "1e-6"]
    there = {finish.solver for finish in finishes if finish.level == "1e-6" and finish.cpu_seconds}
    assert there >= {"subspace", "ALM, partial SVD", "GoDec"}


def test_the_command_prints_one_document() -> None:
    done = CliRunner().invoke(app, ["--size", "60", "--participants", "2", "--repeats", "1", "--no-packages", "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert {row["told"] for row in rows if row["solver"] == "subspace"} == {"rank", "bound 2r"}

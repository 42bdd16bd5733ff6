"""Packages of the index in the race: called as documented, named with their version, and never in the way of others."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
import pytest

from benchmarks.peers import __main__ as command
from benchmarks.peers import packaged_peers
from benchmarks.peers.packaged_peers import OWN_TOLERANCE, PACKAGES, Package, first_length, installed, packaged
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.synthetic import Problem, Recipe, generate


def problem() -> Problem:
    return generate(Recipe(80, 80, 2, 0.05, counts=(40, 40)), 1)


def endless(problem: Problem) -> Mapping[str, packaged_peers.Run]:
    """A package that never comes to an end."""

    def run(_: int | None) -> FloatArray:
        time.sleep(600)
        return problem.L

    return {"": run}


@pytest.mark.parametrize("place", [1, 2, 3, 7, 8, 9, 300, 512])
def test_the_shortest_run_to_a_level_is_found(place: int) -> None:
    tried: list[int] = []

    def error_after(count: int) -> float:
        tried.append(count)
        return 0.5**count if count < place else 0.0

    assert first_length(error_after, 0.0, 512) == place
    assert len(tried) <= 20


def test_a_level_beyond_the_most_iterations_or_beyond_an_error_that_rests_is_not_reached() -> None:
    assert first_length(lambda count: 1.0 / count, 1e-6, 512) is None
    assert first_length(lambda count: float("nan"), 1e-6, 512) is None
    tried: list[int] = []

    def resting(count: int) -> float:
        tried.append(count)
        return 0.3

    assert first_length(resting, 1e-6, 512) is None
    assert max(tried) <= 32


def test_what_is_not_installed_is_told_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = Package("no-such-package", "nothing", endless)
    monkeypatch.setattr(command, "installed", lambda: installed((absent,)))
    monkeypatch.setattr(
        command, "packaged", lambda problem, repeats, limit: packaged(problem, repeats, limit, (absent,))
    )
    assert command._of_packages(problem(), 1, 1.0) == []
    assert capsys.readouterr().err.count("no-such-package is not installed") == 1


@pytest.mark.slow
def test_the_packages_reach_what_they_can_with_their_version_and_pca_does_not() -> None:
    rows = list(packaged(problem(), 1, 60.0))
    there = {name: version for name, version in installed(PACKAGES).items() if version}  # not every Python has rpca
    assert {row.solver: row.version for row in rows} == there
    reached = {(row.solver, row.level) for row in rows if row.cpu_seconds is not None}
    assert {(name, "1e-6") for name in ("pyrpca", "rpca", "tensorly") if name in there} <= reached
    own = {row.solver: row.squared_error for row in rows if row.level == OWN_TOLERANCE}
    assert own["pyrpca"] is not None
    assert own["pyrpca"] < 1e-6
    assert own["scikit-learn"] is not None
    assert own["scikit-learn"] > 0.1


@pytest.mark.slow
def test_a_package_over_its_limit_is_ended_and_the_next_one_runs() -> None:
    slow, quick = Package("numpy", "nothing", endless), PACKAGES[-1]
    rows = list(packaged(problem(), 1, 8.0, (slow, quick)))
    assert [row.note for row in rows[:3]] == ["not within 8 s"] * 3
    assert rows[3].cpu_seconds is not None
    assert np.isfinite(rows[3].squared_error or np.nan)

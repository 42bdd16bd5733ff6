"""Runs that a falling threshold could spoil: what is locked is freed, and what is left apart is told."""

from __future__ import annotations

import numpy as np
import pytest

from dcfpca.rpca.column_blocks import split
from dcfpca.rpca.method import Outcome
from dcfpca.rpca.simulate import Simulation, simulate
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.settings import SubspaceSettings
from dcfpca.rpca.subspace.site_result import unexplained_text
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Outliers, Recipe, generate, relative_error


def apart(run: Simulation, what: str) -> float:
    return sum(result.certificate[f"{what}_apart"] for result in run.results)


@pytest.mark.parametrize(
    ("recipe", "seed"),
    [
        (Recipe(50, 200, 5, 0.05, Outliers.UNIFORM, counts=(70, 70, 60)), 0),
        (Recipe(20, 100, 2, 0.15, Outliers.UNIFORM, counts=(34, 33, 33)), 1),
        (Recipe(50, 200, 5, 0.05, Outliers.SMALL, counts=(70, 70, 60)), 3),
    ],
)
@pytest.mark.parametrize("factor", [1, 2])
def test_columns_that_the_threshold_left_behind_are_freed(recipe: Recipe, seed: int, factor: int) -> None:
    problem = generate(recipe, seed)
    method = subspace_method(SubspaceSolver(recipe.rows, recipe.rank * factor, 150, 1e-11, fixed_rank=factor == 1))
    run = simulate(method, problem.sites())
    assert relative_error(run.low_rank, problem.L) <= 1e-9
    assert apart(run, "columns") == apart(run, "rows") == 0


@pytest.mark.parametrize(("width", "fixed_rank"), [(3, True), (8, False)])
def test_a_row_that_is_a_direction_of_its_own_is_told_or_becomes_one(width: int, fixed_rank: bool) -> None:
    problem = generate(Recipe(100, 120, 3, 0.05, counts=(120,)), 1)
    M = problem.M.copy()
    M[50] = 7.0
    run = simulate(
        subspace_method(SubspaceSolver(100, width, 150, 1e-10, fixed_rank=fixed_rank)), split(M, (40, 40, 40))
    )
    rest = np.arange(100) != 50
    assert relative_error(run.low_rank[rest], problem.L[rest]) <= 1e-9
    explained = relative_error(run.low_rank[50], M[50]) <= 1e-9
    assert run.consensus.progress.rank == (4 if explained else 3)
    assert [result.certificate["rows_apart"] for result in run.results] == [0.0 if explained else 1.0] * 3


def test_a_run_that_never_stops_does_not_take_rounding_for_directions() -> None:
    problem = generate(Recipe(60, 80, 5, 0.05, counts=(80,)), 0)
    run = simulate(subspace_method(SubspaceSolver(60, 20, 150, 0.0, fixed_rank=False)), problem.sites())
    assert {progress.rank for progress in run.history[40:]} == {5}


@pytest.mark.parametrize("factor", [1, 2])
def test_momentum_saves_a_third_of_the_rounds_where_they_are_many(factor: int) -> None:
    problem = generate(Recipe(100, 100, 20, 0.2, counts=(50, 50)), 0)
    runs = [
        simulate(
            subspace_method(SubspaceSolver(100, 20 * factor, 150, 1e-10, settings=settings, fixed_rank=factor == 1)),
            problem.sites(),
        )
        for settings in (SubspaceSettings(), SubspaceSettings(momentum_below=0.0))
    ]
    for run in runs:
        assert run.consensus.outcome is Outcome.CONVERGED
        assert relative_error(run.low_rank, problem.L) <= 1e-9
    assert runs[0].consensus.round <= 0.67 * runs[1].consensus.round


def test_rows_and_columns_that_stay_apart_are_added_to_the_outcome() -> None:
    assert unexplained_text({"rows_apart": 0.0, "columns_apart": 0.0}) == unexplained_text({}) == ""
    told = unexplained_text({"rows_apart": 1.0, "columns_apart": 2.0})
    assert told == "; but most entries of 1 row and 2 columns are outliers: they are not explained"

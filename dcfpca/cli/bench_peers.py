"""`dcfpca bench peers`: time to a given error, compared with centralized solvers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dcfpca.bench.solver_race import TimeToLevel, baseline_peers, race
from dcfpca.cli.runs import Json
from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.synthetic import Outliers, Recipe, generate
from dcfpca.text.console import print_json, result


def peers(
    size: Annotated[int, typer.Option(min=20, help="Rows and columns of the matrix.")] = 500,
    rank: Annotated[int | None, typer.Option(min=1, help="The true rank; a twentieth of the size by default.")] = None,
    sparsity: Annotated[float, typer.Option(help="Share of entries that are outliers.")] = 0.05,
    outliers: Annotated[Outliers, typer.Option(help="Kind of outliers.")] = Outliers.IMPULSE,
    participants: Annotated[
        int, typer.Option(min=1, help="Sites that our solver is divided over, run in sequence.")
    ] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Take the best of this many repetitions.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the problem.")] = 0,
    as_json: Json = False,
) -> None:
    """Measure CPU seconds to a squared relative error of L for every solver, on one problem and one thread."""
    counts = equal_counts(size, participants)
    problem = generate(Recipe(size, size, rank or size // 20, sparsity, outliers, counts=counts), seed)
    times = list(race(problem, baseline_peers(problem), repeats))
    if as_json:
        print_json([asdict(time) for time in times])
        return
    for time in times:
        result(_line(time))


def _line(time: TimeToLevel) -> str:
    seconds = "not reached" if time.cpu_seconds is None else f"{time.cpu_seconds:.3f} s"
    return f"{time.solver:>36}  given {time.told:<24}  {time.level:>6}  {seconds}"

"""`dcfpca bench peers`: time to a given error, against the strongest solvers for one machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dcfpca.bench.solver_race import TimeToLevel, baseline_peers, race
from dcfpca.cli.runs import Json
from dcfpca.rpca.columns import equal_counts
from dcfpca.rpca.synthetic import Outliers, Recipe, generate
from dcfpca.text.console import print_json, result


def peers(
    size: Annotated[int, typer.Option(min=20, help="Rows and columns of the matrix.")] = 500,
    rank: Annotated[int | None, typer.Option(min=1, help="The true rank; else a twentieth of the size.")] = None,
    sparsity: Annotated[float, typer.Option(help="Share of entries that are outliers.")] = 0.05,
    outliers: Annotated[Outliers, typer.Option(help="Kind of outliers.")] = Outliers.IMPULSE,
    participants: Annotated[int, typer.Option(min=1, help="How many sites ours is split over, in sequence.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="The best of so many counts.")] = 3,
    seed: Annotated[int, typer.Option(help="Draws the problem.")] = 0,
    as_json: Json = False,
) -> None:
    """Solve one problem with every solver: CPU seconds on one thread to a squared relative error of L."""
    counts = equal_counts(size, participants)
    problem = generate(Recipe(size, size, rank or size // 20, sparsity, outliers, counts=counts), seed)
    finishes = list(race(problem, baseline_peers(problem), repeats))
    if as_json:
        print_json([asdict(finish) for finish in finishes])
        return
    for finish in finishes:
        result(_line(finish))


def _line(finish: TimeToLevel) -> str:
    seconds = "not reached" if finish.cpu_seconds is None else f"{finish.cpu_seconds:.3f} s"
    return f"{finish.solver:>36}  told {finish.told:<24}  {finish.level:>6}  {seconds}"

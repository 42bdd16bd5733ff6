"""`python -m benchmarks.peers`: time to a given error, compared with centralized solvers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from benchmarks.peers.packaged_peers import LIMIT_SECONDS, installed, packaged
from benchmarks.peers.solver_race import TimeToLevel, baseline_peers, race
from dcfpca.cli.runs import Json
from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.synthetic import Outliers, Problem, Recipe, generate
from dcfpca.text.command_runner import run_command
from dcfpca.text.console import print_json, result, say


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
    packages: Annotated[
        bool, typer.Option(help="Also run pyrpca, rpca, tensorly and scikit-learn's PCA, if installed.")
    ] = True,
    limit: Annotated[float, typer.Option(min=1.0, help="Seconds that a package may take in all.")] = LIMIT_SECONDS,
    as_json: Json = False,
) -> None:
    """Measure CPU seconds to a squared relative error of L for every solver, on one problem and one thread."""
    counts = equal_counts(size, participants)
    problem = generate(Recipe(size, size, rank or size // 20, sparsity, outliers, counts=counts), seed)
    times = list(race(problem, baseline_peers(problem), repeats))
    if packages:
        times += _of_packages(problem, repeats, limit)
    if as_json:
        print_json([asdict(time) for time in times])
        return
    for time in times:
        result(_line(time))


def _of_packages(problem: Problem, repeats: int, limit: float) -> list[TimeToLevel]:
    for name in (name for name, version in installed().items() if version is None):
        say(f"{name} is not installed and is left out; `pip install 'dcfpca[bench]'` brings it")
    return list(packaged(problem, repeats, limit))


def _line(time: TimeToLevel) -> str:
    seconds = time.note or "not reached" if time.cpu_seconds is None else f"{time.cpu_seconds:.3f} s"
    error = "" if time.squared_error is None else f", squared error {time.squared_error:.1e}"
    solver = f"{time.solver} {time.version}".rstrip()
    return f"{solver:>36}  given {time.told:<24}  {time.level:>13}  {seconds}{error}"


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.command()(peers)

if __name__ == "__main__":
    run_command(app)

"""`python -m benchmarks.solve`: solves a robust PCA of known truth in this process and prints its figures."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from benchmarks.solver.timed_solve import Solved
from benchmarks.solver.timed_solve import solve as measure
from dcfpca.cli.runs import Json
from dcfpca.errors import BadInput
from dcfpca.rpca import MethodName
from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Outliers, Recipe, generate
from dcfpca.text.command_runner import run_command
from dcfpca.text.console import print_json, result


def solve(
    rows: Annotated[int, typer.Option(min=1, help="Rows of the matrix.")] = 500,
    columns: Annotated[int, typer.Option(min=1, help="Columns of the matrix, over all sites.")] = 500,
    rank: Annotated[int, typer.Option(min=1, help="The true rank; given to the solver unless --max-rank is set.")] = 25,
    max_rank: Annotated[int | None, typer.Option(min=1, help="Give the solver only this upper bound.")] = None,
    sparsity: Annotated[float, typer.Option(help="Share of entries that are outliers.")] = 0.05,
    outliers: Annotated[Outliers, typer.Option(help="Kind of outliers.")] = Outliers.IMPULSE,
    participants: Annotated[int, typer.Option(min=1, help="How many sites, of equal size.")] = 10,
    method: Annotated[MethodName, typer.Option(help="The method.")] = "subspace",
    noise: Annotated[float, typer.Option(help="Dense noise, relative to the standard deviation of L.")] = 0.0,
    missing: Annotated[float, typer.Option(help="Share of entries that are not observed.")] = 0.0,
    rounds: Annotated[int, typer.Option(min=1, help="At most this many rounds.")] = 150,
    tolerance: Annotated[float, typer.Option(help="Stop when the relative change of L is less.")] = 1e-11,
    seed: Annotated[int, typer.Option(help="Seed of the problem and the start.")] = 0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the matrix products.")] = 1,
    as_json: Json = False,
) -> None:
    """Solve a problem of known truth and print error, rounds, rank, seconds and memory."""
    counts = equal_counts(columns, participants)
    problem = generate(Recipe(rows, columns, rank, sparsity, outliers, noise, missing, counts=counts), seed)
    chosen = _method(method, rows, rank, max_rank, rounds, tolerance, seed)
    _print(measure(chosen, problem, threads), as_json)


def _method(name: str, rows: int, rank: int, max_rank: int | None, rounds: int, tolerance: float, seed: int) -> Method:
    width = rank if max_rank is None else max_rank
    if width > rows:
        raise BadInput(f"the bound {width} is larger than the {rows} rows", "lower --rank or --max-rank")
    if name == "gradient":
        return gradient_method(GradientSolver(rows, width, rounds, tolerance, seed))
    return subspace_method(SubspaceSolver(rows, width, rounds, tolerance, seed, fixed_rank=max_rank is None))


def _print(solved: Solved, as_json: bool) -> None:
    if as_json:
        print_json(asdict(solved))
        return
    for key, value in asdict(solved).items():
        result(f"{key:>20}  {value:.3g}" if isinstance(value, float) else f"{key:>20}  {value}")


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.command()(solve)

if __name__ == "__main__":
    run_command(app)

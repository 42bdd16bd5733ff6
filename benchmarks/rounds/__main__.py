"""`python -m benchmarks.rounds`: what a round costs when nothing is computed."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

import typer

from benchmarks.rounds.masking_cost import measure_masking
from benchmarks.rounds.round_cost import RoundCase, measure_bare_rounds, measure_rounds
from dcfpca.cli.runs import Json
from dcfpca.errors import BadInput
from dcfpca.scaffold.background import signals_exit
from dcfpca.text.command_runner import run_command
from dcfpca.text.console import print_json, result, say, size, span


def rounds(
    participants: Annotated[int, typer.Option(min=2, help="How many sites.")] = 10,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the exchanged tensor.")] = 1000,
    rank: Annotated[int, typer.Option(min=1, help="Columns of the exchanged tensor.")] = 50,
    count: Annotated[int, typer.Option("--rounds", min=2, help="How many rounds.")] = 20,
    aggregation: Annotated[Literal["secure", "plain"], typer.Option(help="How updates are aggregated.")] = "secure",
    verify: Annotated[
        Literal["sampled", "always", "never"], typer.Option(help="Which sums the sites check, as in their policy.")
    ] = "sampled",
    precision: Annotated[int, typer.Option(help="Bits per number in a secure sum: 64 or 32.")] = 64,
    raw: Annotated[bool, typer.Option("--raw", help="Also measure a bare gRPC exchange of the same bytes.")] = False,
    as_json: Json = False,
) -> None:
    """Measure rounds in which the sites compute nothing."""
    if rank > rows:
        raise BadInput(f"the rank {rank} is larger than the {rows} rows", "lower --rank")
    case = RoundCase(participants, rows, rank, count, aggregation, precision, verify)
    with tempfile.TemporaryDirectory(prefix="dcfpca-bench-") as directory, signals_exit():
        federation_directory = Path(directory)
        figures = measure_rounds(case, federation_directory)
        found: dict[str, float | int | str | None] = {**asdict(case), **asdict(figures)}
        if aggregation == "secure":
            found |= asdict(measure_masking(participants, rows * rank))
        if raw:
            say("measuring the same bytes over bare gRPC")
            bare = measure_bare_rounds(case, federation_directory)
            found |= {"raw_round_s": median(bare.seconds), "raw_server_cpu_s": bare.server_cpu_s}
    if as_json:
        print_json(found)
    else:
        for key, value in found.items():
            result(f"{key:>28}  {_shown(key, value)}")


def _shown(key: str, value: float | int | str | None) -> str:
    if value is None:
        return "–"
    if key.endswith("_s"):
        return f"{float(value) * 1000:.1f} ms" if float(value) < 1 else span(float(value))
    if "bytes" in key:
        return size(float(value))
    return str(value)


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.command()(rounds)

if __name__ == "__main__":
    run_command(app)

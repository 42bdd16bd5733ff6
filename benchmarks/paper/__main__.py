"""`python -m benchmarks.paper`: reproduces the paper's figures, tables and theorems."""

from __future__ import annotations

import time
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.paper.figures import FIGURES, part_of, produce
from benchmarks.paper.plotting import require_matplotlib
from dcfpca.cli.runs import Json
from dcfpca.text.command_runner import run_command
from dcfpca.text.console import print_json, result, say, span


class Choice(StrEnum):
    """The names of the figures."""

    MAIN = "main"
    PHASE = "phase"
    SINGULAR = "singular"
    RANK = "rank"
    LOCAL_ITERATIONS = "local-iterations"
    THEOREMS = "theorems"


def paper(
    figure: Annotated[Choice | None, typer.Option(help="Only this figure; all by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller matrices and fewer rounds; takes minutes.")] = False,
    size: Annotated[int | None, typer.Option(help="Only this n; what the data file has of others stays.")] = None,
    solver: Annotated[
        str | None, typer.Option(help="Only this solver, by its name in the data; what the file has of others stays.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Directory for paper-FIGURE.json, .png and .svg.")] = Path("paper-figures"),
    first: Annotated[int | None, typer.Option(help="Stop after this many cases of a figure.")] = None,
    as_json: Json = False,
) -> None:
    """Reproduce the figures and tables of the paper, next to the published numbers."""
    require_matplotlib()
    files: dict[str, str] = {}
    for name in [figure] if figure else list(Choice):
        chosen, began = FIGURES[name.value], time.monotonic()
        plan, part = chosen.quick if quick else chosen.full, bool(size or solver)
        if part:
            plan = part_of(chosen, plan, size, solver)
        tell = partial(_tell, name)
        written = produce(chosen, plan, out, tell, quick=quick, part=part, first=first)
        files[name.value] = str(written)
        if not as_json:
            result(f"{written} ({span(time.monotonic() - began)})")
    if as_json:
        print_json(files)


def _tell(figure: Choice, text: str) -> None:
    say(f"{figure}: {text}")


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)
app.command()(paper)

if __name__ == "__main__":
    run_command(app)

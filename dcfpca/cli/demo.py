"""`dcfpca demo`: runs a whole federation on one machine, from certificates to results, in under a minute."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from dcfpca.cli.demo_view import show_outcome
from dcfpca.cli.runs import Json
from dcfpca.demo.child_processes import Children, ending_in_order
from dcfpca.demo.federation import Federation
from dcfpca.demo.outcome import outcome_document
from dcfpca.demo.problem import draw
from dcfpca.demo.scenario import Scenario, play
from dcfpca.method_names import MethodName
from dcfpca.operator.downloads import refuse_unless_empty
from dcfpca.text.console import print_json


def demo(
    participants: Annotated[int, typer.Option(help="How many sites; the last one is private.")] = 4,
    method: Annotated[MethodName, typer.Option(help="The method of the run.")] = "subspace",
    rows: Annotated[int, typer.Option(help="Rows of the data: the features.")] = 300,
    columns: Annotated[int, typer.Option(help="Columns of the data, divided unequally among the sites.")] = 600,
    rank: Annotated[int, typer.Option(help="Rank of the true low-rank part.")] = 8,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Directory to create; a temporary one by default.")
    ] = None,
    kill: Annotated[bool, typer.Option(help="Kill a site and the aggregator during the run, and restart them.")] = True,
    seed: Annotated[int, typer.Option(help="Seed of the synthetic data.")] = 1,
    as_json: Json = False,
) -> None:
    """Run a whole federation on this machine: certificates, services, a run, results and a refused export."""
    scenario = Scenario(participants, method, rows, columns, rank, seed, kill)
    problem = draw(rows, columns, rank, participants, seed)
    home = _home(directory)
    with ending_in_order(), Children() as children:
        outcome = play(scenario, problem, Federation(home, children))
    if as_json:
        print_json(outcome_document(outcome))
    else:
        show_outcome(outcome)


def _home(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="dcfpca-demo-"))
    refuse_unless_empty(directory)
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve()

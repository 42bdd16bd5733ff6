"""`dcfpca demo`: runs a whole federation on one machine, from certificates to results, in under a minute."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dcfpca.cli.runs import Json
from dcfpca.errors import DcfpcaError
from dcfpca.operator.downloads import refuse_unless_empty
from dcfpca.rpca import MethodName
from dcfpca.scaffold.background import signals_exit
from dcfpca.scaffold.demo import DemoOutcome, DemoPlan, draw, run_demo
from dcfpca.text import console

_LEDGER_SECONDS = 60.0


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
    problem = draw(rows, columns, rank, participants, seed)
    home = _home(directory)
    with signals_exit():
        outcome = run_demo(DemoPlan(participants, method, rows, rank, kill), problem, home)
    if as_json:
        console.print_json(outcome.document())
    else:
        _show(outcome)


def _home(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="dcfpca-demo-"))
    refuse_unless_empty(directory)
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve()


def _show(outcome: DemoOutcome) -> None:
    """Print the figures, the sites' results, the refusals and the private site's ledger on stdout."""
    last, score = outcome.view.rounds[-1], outcome.score
    private = list(outcome.results)[-1]
    config = outcome.directory / "sites" / private / "participant.toml"
    moved = (
        f"{console.size(outcome.bytes_received)} went to the aggregator, {console.size(outcome.bytes_sent)} came back"
    )
    found = "found" if json.loads(outcome.view.spec)["max_rank"] else "as stated"
    parts: list[RenderableType] = [
        Text(f"\nrank {last.rank} {found}, {outcome.rounds} rounds, {outcome.seconds:.1f} s in all; {moved}"),
        Text(f"error against the truth: {score.low_rank_error:.1e} (‖L − L₀‖/‖L₀‖), {score.error:.1e} (the paper's)\n"),
        _sites(outcome),
        *(Text(f"\n{one.participant} did not export: {'; '.join(one.reasons)}") for one in outcome.refusals),
        Text(f"\neverything that left {private}, by its own ledger:"),
        _ledger(config),
        Text(f"\nthe whole run as a page for your browser: {outcome.report}"),
        Text(f"configs, keys, logs, results and the export are in {outcome.directory}"),
        Text(f"look again: {command_to_type('dcfpca-participant')} ledger --config {config}"),
    ]
    console.show(Group(*parts))


def command_to_type(name: str) -> str:
    """How to call this command of ours here: by its path where the shell would not find it, as after `make demo`."""
    if shutil.which(name):
        return name
    beside = Path(sys.executable).with_name(name)
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)


def _ledger(config: Path) -> Table:
    """Every kind of message that left a site, most bytes first, by the participant's own command."""
    command = [sys.executable, "-m", "participant.main", "ledger", "--config", str(config), "--json"]
    asked = subprocess.run(command, capture_output=True, text=True, timeout=_LEDGER_SECONDS, check=False)  # noqa: S603
    if asked.returncode:
        raise DcfpcaError(f"the ledger of {config.parent.name} cannot be read: {asked.stderr.strip()}")
    sent = [entry for entry in json.loads(asked.stdout)["entries"] if entry["sent"]]
    kinds = {entry["type"]: entry["shape"] for entry in sent}
    sizes = {kind: [one["bytes"] for one in sent if one["type"] == kind] for kind in kinds}
    made = console.table("message", "#count", "#bytes", "shape of the last")
    for kind, each in sorted(sizes.items(), key=lambda item: -sum(item[1])):
        console.add_row(made, kind, str(len(each)), console.size(sum(each)), kinds[kind])
    return made


def _sites(outcome: DemoOutcome) -> Table:
    made = console.table("site", "#columns", "#error of L", "#outliers found", "wrote, at the site", "exported")
    for one in outcome.score.sites:
        results = outcome.results[one.name]
        wrote = ", ".join(sorted(path.name for path in results.iterdir()))
        exported = outcome.exported / one.name
        console.add_row(
            made,
            one.name,
            str(one.columns),
            f"{one.low_rank_error:.1e}",
            f"{one.found} of {one.outliers}" + (f", {one.invented} wrong" if one.invented else ""),
            wrote,
            ", ".join(sorted(path.name for path in exported.iterdir())) if exported.is_dir() else "nothing: private",
        )
    return made

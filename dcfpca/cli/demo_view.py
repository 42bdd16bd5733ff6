"""The summary that `dcfpca demo` prints."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dcfpca.demo.egress_summary import SentMessages, read_ledger
from dcfpca.demo.outcome import DemoOutcome
from dcfpca.text import console


def show_outcome(outcome: DemoOutcome) -> None:
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
        Text(f"‖L − L₀‖/‖L₀‖ = {score.low_rank_error:.1e}, the paper's err = {score.error:.1e}\n"),
        _sites(outcome),
        *(Text(f"\n{one.participant} did not export: {'; '.join(one.reasons)}") for one in outcome.refusals),
        Text(f"\neverything that left {private}, by its own ledger:"),
        _ledger(read_ledger(config)),
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


def _ledger(lines: list[SentMessages]) -> Table:
    made = console.table("message", "#count", "#bytes", "shape of the last")
    for left in lines:
        console.add_row(made, left.kind, str(left.count), console.size(left.size), left.shape)
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

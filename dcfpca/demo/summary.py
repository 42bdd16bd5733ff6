"""What the demo found, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dcfpca.demo.ledger import Left, read_ledger
from dcfpca.demo.problem import Score
from dcfpca.text import console
from dcfpca.v1 import admin_pb2 as pb


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything there is to tell at the end."""

    directory: Path
    view: pb.RunView
    score: Score
    refusals: tuple[pb.Refusal, ...]
    results: Mapping[str, Path]
    exported: Path
    report: Path
    files: tuple[Path, ...]
    seconds: float
    method: str

    @property
    def rounds(self) -> int:
        """Rounds of the method, the opening exchange not counted."""
        return max((one.round for one in self.view.rounds), default=0)

    @property
    def bytes_sent(self) -> int:
        """Payload bytes from the aggregator to the sites."""
        return sum(one.bytes_sent for one in self.view.rounds)

    @property
    def bytes_received(self) -> int:
        """Payload bytes from the sites to the aggregator."""
        return sum(one.bytes_received for one in self.view.rounds)


def document(outcome: Outcome) -> dict[str, console.Json]:
    """The JSON document; its keys are a contract."""
    return {
        "participants": len(outcome.results),
        "method": outcome.method,
        "rounds": outcome.rounds,
        "seconds": round(outcome.seconds, 3),
        "error": outcome.score.error,
        "relative_error_L": outcome.score.low_rank_error,
        "bytes_sent": outcome.bytes_sent,
        "bytes_received": outcome.bytes_received,
        "refusals": [{"participant": one.participant, "reason": "; ".join(one.reasons)} for one in outcome.refusals],
        "files": [str(path) for path in outcome.files],
    }


def tell(outcome: Outcome) -> None:
    """The end of the story, on stdout."""
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
        Text(f"look again: dcfpca-participant ledger --config {config}"),
    ]
    console.show(Group(*parts))


def _ledger(lines: list[Left]) -> Table:
    made = console.table("message", "#count", "#bytes", "shape of the last")
    for left in lines:
        console.add_row(made, left.kind, str(left.count), console.size(left.size), left.shape)
    return made


def _sites(outcome: Outcome) -> Table:
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

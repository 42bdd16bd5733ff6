"""`dcfpca demo`: a whole federation on one machine, from certificates to results, in under a minute."""

from __future__ import annotations

import tempfile
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from dcfpca.cli.export import gather
from dcfpca.cli.report import write_report
from dcfpca.cli.runs import Json
from dcfpca.cli.watching import Watch, unless_finished
from dcfpca.demo.children import Children, ending_in_order
from dcfpca.demo.fault_injection import Mishaps
from dcfpca.demo.federation import Federation, SitePlan
from dcfpca.demo.problem import draw, files_below, score, site_names
from dcfpca.demo.summary import Outcome, document, tell
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import connect_settings, connected
from dcfpca.operator.downloads import fetch_model, fetch_reconstruction, refuse_unless_empty, staged
from dcfpca.report.run import run_report
from dcfpca.rpca.synthetic import Problem
from dcfpca.spec import MethodName, RunSpec, parse_spec
from dcfpca.text.console import print_json, say
from dcfpca.text.run_progress import Progress
from dcfpca.v1 import admin_pb2 as pb

_CONNECT_SECONDS = 60.0
_RESULT_SECONDS = 60.0
_EXPORT_SECONDS = 60.0
_FEWEST_TO_KILL_ONE = 3


@dataclass(frozen=True, slots=True)
class Scene:
    """What the demo plays: the data's size, the method, whether processes are killed."""

    participants: int
    method: str
    rows: int
    columns: int
    rank: int
    seed: int
    kill: bool

    def spec(self, names: list[str]) -> RunSpec:
        """The spec that the demo's operator proposes; `subspace` is given an upper bound and finds the rank."""
        found = self.method == "subspace" and 2 * self.rank <= self.rows
        keys = {
            "label": "demo",
            "method": self.method,
            "rows": self.rows,
            "participants": names,
            "export": True,
            "round_seconds": 20.0,
            "rounds": 100 if self.method == "subspace" else 60,
            "tolerance": 1e-9 if self.method == "subspace" else 1e-5,
            "max_rank" if found else "rank": 2 * self.rank if found else self.rank,
        }
        return parse_spec(keys)


def demo(
    participants: Annotated[int, typer.Option(help="How many sites; the last one is private.")] = 4,
    method: Annotated[MethodName, typer.Option(help="How the low-rank part is found.")] = "subspace",
    rows: Annotated[int, typer.Option(help="Rows of the data: what is measured.")] = 300,
    columns: Annotated[int, typer.Option(help="Columns of the data, dealt out unequally to the sites.")] = 600,
    rank: Annotated[int, typer.Option(help="Rank of the true low-rank part.")] = 8,
    directory: Annotated[Path | None, typer.Option("--dir", help="Directory to make; else a temporary one.")] = None,
    kill: Annotated[bool, typer.Option(help="Kill a site and the aggregator in mid-run, and start them again.")] = True,
    seed: Annotated[int, typer.Option(help="Of the synthetic data.")] = 1,
    as_json: Json = False,
) -> None:
    """Show it all on this machine: certificates, services, a run, results, a refusal. Nothing else is touched."""
    scene = Scene(participants, method, rows, columns, rank, seed, kill and participants >= _FEWEST_TO_KILL_ONE)
    problem = draw(rows, columns, rank, participants, seed)
    home = _home(directory)
    with ending_in_order(), Children() as children:
        outcome = _play(scene, problem, Federation(home, children))
    if as_json:
        print_json(document(outcome))
    else:
        tell(outcome)


def _home(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="dcfpca-demo-"))
    refuse_unless_empty(directory)
    directory.mkdir(parents=True, exist_ok=True)
    return directory.resolve()


def _play(scene: Scene, problem: Problem, federation: Federation) -> Outcome:
    began = time.monotonic()
    names = site_names(scene.participants)
    say(f"a consortium CA, one aggregator and {scene.participants} sites are set up in {federation.directory}")
    federation.start_aggregator()
    for name, own in zip(names, problem.sites(), strict=True):
        federation.add_site(SitePlan(name, _policy(scene, private=name == names[-1])), own.array)
    flags = dict.fromkeys(("aggregator", "ca", "cert", "key"))
    with connected(connect_settings(flags, federation.operator_config)) as operator:
        federation.children.until(lambda: all_connected(operator, names), "the sites' connection", _CONNECT_SECONDS)
        say(f"all connected by mutual TLS to {federation.address}; {names[-1]} is flagged private")
        view = _follow(scene, operator, federation, names)
        gathered, exported = _export(operator, view, federation.directory / "export")
        report = federation.directory / "report.html"
        write_report(
            report, run_report(operator.run(view.run_id), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"), force=False
        )
    results = {name: federation.results_directory(name, view.run_id) for name in names}
    return Outcome(
        directory=federation.directory,
        view=view,
        score=score(problem, results),
        refusals=tuple(gathered.refusals),
        results=results,
        method=scene.method,
        exported=exported,
        report=report,
        files=(*(path for directory in (*results.values(), exported) for path in files_below(directory)), report),
        seconds=time.monotonic() - began,
    )


def _policy(scene: Scene, *, private: bool) -> dict[str, str | int | float | bool]:
    """Sites allow exports; the private one says so too, and refuses all the same."""
    return {"private": private, "allow_export": True, "min_cohort": min(3, scene.participants), "max_rank": scene.rows}


def all_connected(operator: Operator, names: list[str]) -> bool:
    """Whether each of these participants has its stream open."""
    return {one.name for one in operator.participants() if one.state == "connected"} >= set(names)


def _follow(scene: Scene, operator: Operator, federation: Federation, names: list[str]) -> pb.RunView:
    """Propose the run and watch it; every site has written its result when this returns."""
    with Progress() as progress:
        mishaps = Mishaps(federation, names[1], progress.note)
        proposed = operator.propose(scene.spec(names).canonical(), uuid.uuid4().hex)
        progress.update(proposed)
        view = Watch(operator, proposed.run_id, progress).follow(mishaps.look if scene.kill else None)
        mishaps.repair()
    if error := unless_finished(view):
        error.hint = f"the logs are in {federation.directory}"
        raise error
    manifests = [federation.results_directory(name, view.run_id) / "manifest.json" for name in names]
    federation.children.until(lambda: all(path.exists() for path in manifests), "the sites' results", _RESULT_SECONDS)
    return view


def _export(operator: Operator, view: pb.RunView, out: Path) -> tuple[pb.ExportView, Path]:
    """What `dcfpca run export` does."""
    gathered = gather(operator, view, _EXPORT_SECONDS)
    with staged(out) as work:
        fetch_model(operator, view.run_id, work)
        for told in gathered.files:
            fetch_reconstruction(operator, view.run_id, told, work)
    return gathered, out

"""The demo: a federation on one machine that runs, survives two killed processes, and exports its results."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from dcfpca.demo.fault_injection import FaultInjector
from dcfpca.demo.federation import Federation, SitePlan
from dcfpca.demo.outcome import DemoOutcome
from dcfpca.demo.problem import files_below, score, site_names
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import connect_settings, connected
from dcfpca.operator.export import download_export, request_reconstructions
from dcfpca.report.report_file import write_report
from dcfpca.report.run import run_report
from dcfpca.rpca.synthetic import Problem
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.text.console import say
from dcfpca.text.run_progress import RunProgress
from dcfpca.text.run_watch import RunWatch, raise_unless_finished
from dcfpca.v1 import admin_pb2 as pb

_CONNECT_SECONDS = 60.0
_RESULT_SECONDS = 60.0
_EXPORT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """The size of the data, the method, and whether processes are killed."""

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


def play(scenario: Scenario, problem: Problem, federation: Federation) -> DemoOutcome:
    """Set up the federation, run the scenario in it and collect what came out; its processes are left running."""
    began = time.monotonic()
    names = site_names(scenario.participants)
    say(f"a consortium CA, one aggregator and {scenario.participants} sites are set up in {federation.directory}")
    federation.start_aggregator()
    for name, own in zip(names, problem.sites(), strict=True):
        federation.add_site(SitePlan(name, _policy(scenario, private=name == names[-1])), own.array)
    flags = dict.fromkeys(("aggregator", "ca", "cert", "key"))
    with connected(connect_settings(flags, federation.operator_config)) as operator:
        federation.children.until(lambda: operator.are_connected(names), "the sites' connection", _CONNECT_SECONDS)
        say(f"all connected by mutual TLS to {federation.address}; {names[-1]} is flagged private")
        view = _follow(scenario, operator, federation, names)
        export, exported = request_reconstructions(operator, view, _EXPORT_SECONDS), federation.directory / "export"
        download_export(operator, view, export, exported)
        report = federation.directory / "report.html"
        write_report(
            report, run_report(operator.run(view.run_id), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"), force=False
        )
    results = {name: federation.results_directory(name, view.run_id) for name in names}
    return DemoOutcome(
        directory=federation.directory,
        view=view,
        score=score(problem, results),
        refusals=tuple(export.refusals),
        results=results,
        method=scenario.method,
        exported=exported,
        report=report,
        files=(*(path for directory in (*results.values(), exported) for path in files_below(directory)), report),
        seconds=time.monotonic() - began,
    )


def _policy(scenario: Scenario, *, private: bool) -> dict[str, str | int | float | bool]:
    """Every site allows exports; at the private site, `private` overrides that."""
    return {
        "private": private,
        "allow_export": True,
        "min_cohort": min(3, scenario.participants),
        "max_rank": scenario.rows,
    }


def _follow(scenario: Scenario, operator: Operator, federation: Federation, names: list[str]) -> pb.RunView:
    """Propose the run and watch it until every site has written its result."""
    with RunProgress() as progress:
        faults = FaultInjector(federation, names[1], progress.note)
        proposed = operator.propose(scenario.spec(names).canonical(), uuid.uuid4().hex)
        progress.update(proposed)
        view = RunWatch(operator, proposed.run_id, progress).follow(faults.on_update if scenario.kill else None)
        faults.restart_victim()
    raise_unless_finished(view, f"the logs are in {federation.directory}")
    manifests = [federation.results_directory(name, view.run_id) / "manifest.json" for name in names]
    federation.children.until(lambda: all(path.exists() for path in manifests), "the sites' results", _RESULT_SECONDS)
    return view

"""The demo: a consortium on one machine solves a problem of known truth, survives two killed processes, and exports."""

from __future__ import annotations

import string
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dcfpca.errors import BadInput
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import CONNECTION_KEYS, connect_settings, connected
from dcfpca.operator.downloads import download_export, request_reconstructions
from dcfpca.report.page import write_report
from dcfpca.report.run import run_report
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.synthetic import Problem, Recipe, generate, paper_error, relative_error
from dcfpca.scaffold.background import until
from dcfpca.scaffold.config_texts import Tables
from dcfpca.scaffold.local_consortium import Consortium, LocalPlan, create_consortium, start_consortium, stop_consortium
from dcfpca.spec import RunSpec, parse_spec
from dcfpca.text.console import say
from dcfpca.text.run_progress import RunHistory, RunProgress
from dcfpca.text.run_watch import follow_run, raise_unless_finished
from dcfpca.v1 import admin_pb2 as pb

FEWEST_SITES = 2
_FEWEST_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class SiteScore:
    """The errors of one site's result files."""

    name: str
    columns: int
    low_rank_error: float
    outliers: int
    found: int
    invented: int


@dataclass(frozen=True, slots=True)
class Score:
    """The errors over all sites."""

    error: float
    low_rank_error: float
    sites: tuple[SiteScore, ...]


def site_names(count: int) -> list[str]:
    """hospital-a, hospital-b, …; numbered if there are more than 26."""
    if count <= len(string.ascii_lowercase):
        return [f"hospital-{letter}" for letter in string.ascii_lowercase[:count]]
    return [f"hospital-{number:03d}" for number in range(1, count + 1)]


def unequal_counts(columns: int, sites: int) -> tuple[int, ...]:
    """Column counts that differ: the last site has about three times as many as the first."""
    if sites < FEWEST_SITES or columns < sites * _FEWEST_COLUMNS:
        least = max(sites, FEWEST_SITES) * _FEWEST_COLUMNS
        hint = f"give at least {FEWEST_SITES} participants and {least} columns"
        raise BadInput(f"{columns} columns cannot be divided among {sites} participants", hint)
    weights = np.linspace(1.0, 3.0, sites)
    ends = np.round(np.cumsum(weights) / weights.sum() * (columns - sites * _FEWEST_COLUMNS)).astype(int)
    return tuple(int(count) + _FEWEST_COLUMNS for count in np.diff(ends, prepend=0))


def draw(rows: int, columns: int, rank: int, sites: int, seed: int) -> Problem:
    """A low-rank matrix with 5 % gross errors, divided unequally among the sites."""
    return generate(Recipe(rows, columns, rank, counts=unequal_counts(columns, sites)), seed)


def score(problem: Problem, results: Mapping[str, Path]) -> Score:
    """Compare the result files of all sites, in order, with the truth."""
    found = [_load(directory) for directory in results.values()]
    L = np.concatenate([low_rank for low_rank, _ in found], axis=1)
    S = sparse.csc_array(sparse.hstack([outliers for _, outliers in found], format="csc"))
    ends = np.cumsum(problem.counts)
    sites = [
        _site_score(name, part, problem.L[:, end - count : end], problem.S[:, end - count : end])
        for name, part, count, end in zip(results, found, problem.counts, ends, strict=True)
    ]
    return Score(paper_error(L, S, problem.L, problem.S), relative_error(L, problem.L), tuple(sites))


def _load(directory: Path) -> tuple[FloatArray, sparse.csc_array]:
    return np.load(directory / "L.npy"), sparse.csc_array(sparse.load_npz(directory / "S.npz"))


def _site_score(name: str, result: tuple[FloatArray, sparse.csc_array], L: FloatArray, S: FloatArray) -> SiteScore:
    """An outlier counts as found where |S| exceeds half of the smallest true outlier."""
    low_rank, sparse_part = result
    flagged = np.abs(sparse_part.toarray()) > 0.5 * np.abs(S[S != 0]).min(initial=np.inf)
    true = S != 0
    return SiteScore(
        name=name,
        columns=L.shape[1],
        low_rank_error=relative_error(low_rank, L),
        outliers=int(true.sum()),
        found=int((flagged & true).sum()),
        invented=int((flagged & ~true).sum()),
    )


_RESULT_SECONDS = 60.0
_EXPORT_SECONDS = 60.0
_KILL_AFTER_ROUND = 2


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """The size of the data, the method, and whether processes are killed."""

    participants: int
    method: str
    rows: int
    rank: int
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

    def policy(self, *, private: bool) -> Tables:
        """A site's policy. Every site allows exports; at the private one, `private` overrides that."""
        # The data is synthetic, so that few columns are enough.
        return {"policy": {"private": private, "allow_export": True, "min_columns": 1, "max_rank": self.rows}}


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """The finished run, its score against the truth, and every file that was written."""

    directory: Path
    view: pb.RunView
    score: Score
    refusals: tuple[pb.Refusal, ...]
    results: Mapping[str, Path]
    exported: Path
    report: Path
    seconds: float
    method: str

    @property
    def rounds(self) -> int:
        """Rounds of the method, not counting the opening exchange."""
        return max((one.round for one in self.view.rounds), default=0)

    @property
    def bytes_sent(self) -> int:
        """Payload bytes from the aggregator to the sites."""
        return sum(one.bytes_sent for one in self.view.rounds)

    @property
    def bytes_received(self) -> int:
        """Payload bytes from the sites to the aggregator."""
        return sum(one.bytes_received for one in self.view.rounds)

    def document(self) -> dict[str, Any]:
        """The document of `dcfpca demo --json`; scripts rely on its keys."""
        below = [path for home in (*self.results.values(), self.exported) for path in sorted(home.rglob("*"))]
        return {
            "participants": len(self.results),
            "method": self.method,
            "rounds": self.rounds,
            "seconds": round(self.seconds, 3),
            "error": self.score.error,
            "relative_error_L": self.score.low_rank_error,
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
            "refusals": [{"participant": one.participant, "reason": "; ".join(one.reasons)} for one in self.refusals],
            "files": [str(path) for path in (*below, self.report) if path.is_file()],
        }


def run_demo(plan: DemoPlan, problem: Problem, directory: Path) -> DemoOutcome:
    """Set up a consortium in the directory, run the demo in it and collect what came out; no process stays."""
    began = time.monotonic()
    names = site_names(plan.participants)
    say(f"a consortium CA, one aggregator and {plan.participants} sites are set up in {directory}")
    consortium = create_consortium(
        directory,
        LocalPlan(
            "demo",
            {name: directory / "sites" / name / "data.npy" for name in names},
            # No web page: the demo is over before anybody would open it.
            aggregator={"dashboard": {"listen": ""}},
            participants={name: plan.policy(private=name == names[-1]) for name in names},
        ),
    )
    for name, own in zip(names, problem.sites(), strict=True):
        np.save(consortium.sites[name].directory / "data.npy", own.array)
    try:
        start_consortium(consortium, note=_nothing)
        say(f"all connected by mutual TLS to {consortium.address}; {names[-1]} is flagged private")
        return _outcome(plan, problem, consortium, names, began)
    finally:
        stop_consortium(consortium, note=_nothing)


def _outcome(plan: DemoPlan, problem: Problem, consortium: Consortium, names: list[str], began: float) -> DemoOutcome:
    with connected(connect_settings(dict.fromkeys(CONNECTION_KEYS), consortium.operator_config)) as operator:
        view = _follow(plan, operator, consortium, names)
        export, exported = request_reconstructions(operator, view, _EXPORT_SECONDS), consortium.directory / "export"
        download_export(operator, view, export, exported)
        page = run_report(operator.run(view.run_id), f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC")
        report = consortium.directory / "report.html"
        write_report(report, page, force=False)
    results = {name: consortium.results(name, view.run_id) for name in names}
    return DemoOutcome(
        directory=consortium.directory,
        view=view,
        score=score(problem, results),
        refusals=tuple(export.refusals),
        results=results,
        exported=exported,
        report=report,
        seconds=time.monotonic() - began,
        method=plan.method,
    )


def _follow(plan: DemoPlan, operator: Operator, consortium: Consortium, names: list[str]) -> pb.RunView:
    """Propose the run and watch it until every site has written its result."""
    with RunProgress() as progress:
        faults = FaultInjector(consortium, names[1], progress.note)
        proposed = operator.propose(plan.spec(names).canonical(), uuid.uuid4().hex)
        progress.update(proposed)
        view = follow_run(operator, proposed.run_id, progress, on_update=faults.on_update if plan.kill else None)
        consortium.start_site(names[1])  # the run may have ended while it was down
    raise_unless_finished(view, f"the logs are in {consortium.directory}")
    manifests = [consortium.results(name, view.run_id) / "manifest.json" for name in names]
    daemons = consortium.sites.values()
    until(lambda: all(path.exists() for path in manifests), daemons, "the sites' results", _RESULT_SECONDS)
    return view


class FaultInjector:
    """Kills the victim after round 2 and the aggregator while it waits for it, and reports through `note` what it did
    and what followed."""

    def __init__(self, consortium: Consortium, victim: str, note: Callable[[str], None]) -> None:
        self._consortium = consortium
        self._victim = victim
        self._note = note
        self._awaited_in = 0
        self._next: Callable[[RunHistory], None] | None = self._kill_site

    def on_update(self, history: RunHistory) -> None:
        """Take the next step if its condition holds; called at every view of the run."""
        if self._next and history.view.status == "running":
            self._next(history)

    def _kill_site(self, history: RunHistory) -> None:
        if history.last_round < _KILL_AFTER_ROUND:
            return
        self._consortium.sites[self._victim].kill()
        self._note(f"{self._victim} was killed (SIGKILL) in round {history.view.round}")
        self._next = self._restart_both

    def _restart_both(self, history: RunHistory) -> None:
        if self._victim not in [one.participant for one in history.view.waiting]:
            return
        self._awaited_in = history.view.round
        self._consortium.aggregator.kill()
        self._note("the aggregator was killed (SIGKILL), too; both are started again")
        self._consortium.start_aggregator()
        self._consortium.start_site(self._victim)
        self._next = self._report_return

    def _report_return(self, history: RunHistory) -> None:
        if history.last_round < self._awaited_in:
            return
        self._note(f"{self._victim} came back where it was; round {self._awaited_in} has the sum over all sites")
        self._next = None


def _nothing(_: str) -> None:
    """The demo reports on its processes itself."""

"""`dcfpca bench rounds`: what a round costs when nothing is computed. Real processes, mutual TLS, the real protocol."""

from __future__ import annotations

import tempfile
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

import numpy as np
import typer

from dcfpca.bench.bare_grpc import measure_raw
from dcfpca.cli.demo import all_connected
from dcfpca.cli.runs import Json
from dcfpca.cli.watching import Watch, unless_finished
from dcfpca.demo.children import Children, ending_in_order
from dcfpca.demo.federation import AGGREGATOR, Federation, SitePlan
from dcfpca.demo.problem import site_names
from dcfpca.errors import BadInput
from dcfpca.operator.client import Operator
from dcfpca.operator.connection import connect_settings, connected
from dcfpca.spec import parse_spec
from dcfpca.text.console import print_json, result, say, size, span
from dcfpca.text.run_progress import Progress
from dcfpca.v1 import admin_pb2 as pb

_CONNECT_SECONDS = 120.0
_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured."""

    participants: int
    rows: int
    rank: int
    rounds: int
    aggregation: str
    precision: int

    def spec(self, names: list[str]) -> bytes:
        """A run that goes through all its rounds."""
        keys = {
            "label": "bench rounds",
            "rows": self.rows,
            "max_rank": self.rank,
            "rounds": self.rounds,
            "tolerance": 0.0,
            "participants": names,
            "aggregation": self.aggregation,
            "precision": self.precision,
            "round_seconds": 600.0,
        }
        return parse_spec(keys).canonical()


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of it. Seconds are those of a round from its opening to the consensus, the opening exchange apart."""

    median_round_s: float
    min_round_s: float
    mean_wall_round_s: float
    bytes_per_participant_round: float
    aggregator_peak_bytes: int | None


def rounds(
    participants: Annotated[int, typer.Option(min=2, help="How many sites.")] = 10,
    rows: Annotated[int, typer.Option(min=1, help="Rows of the exchanged tensor.")] = 1000,
    rank: Annotated[int, typer.Option(min=1, help="Columns of the exchanged tensor.")] = 50,
    count: Annotated[int, typer.Option("--rounds", min=2, help="How many rounds.")] = 20,
    aggregation: Annotated[Literal["secure", "plain"], typer.Option(help="How updates are added.")] = "secure",
    precision: Annotated[int, typer.Option(help="Bits per number in a secure sum: 64 or 32.")] = 64,
    raw: Annotated[bool, typer.Option("--raw", help="Measure a bare gRPC exchange of the same bytes too.")] = False,
    as_json: Json = False,
) -> None:
    """Measure rounds in which the sites compute nothing."""
    if rank > rows:
        raise BadInput(f"the rank {rank} is larger than the {rows} rows", "lower it")
    case = Case(participants, rows, rank, count, aggregation, precision)
    with tempfile.TemporaryDirectory(prefix="dcfpca-bench-") as directory, ending_in_order():
        federation_directory = Path(directory)
        figures = _measure(case, federation_directory)
        found: dict[str, float | int | str | None] = {**asdict(case), **asdict(figures)}
        if raw:
            say("the same bytes by bare gRPC")
            found["raw_round_s"] = median(_raw(case, federation_directory))
    if as_json:
        print_json(found)
    else:
        for key, value in found.items():
            result(f"{key:>28}  {_shown(key, value)}")


def _measure(case: Case, directory: Path) -> Figures:
    names = site_names(case.participants)
    policy: dict[str, str | int | float | bool] = {
        "allow_plain": True,
        "min_cohort": 2,
        "max_rank": case.rank,
        "max_rounds": case.rounds,
    }
    with Children() as children:
        federation = Federation(directory, children)
        # The daemons of a bench share a machine, so none may starve the others.
        federation.start_aggregator({"limits": {"calls_per_second": 10_000.0, "call_burst": 10_000}})
        for name in names:
            plan = SitePlan(name, policy, {"engine": {"kind": "idle", "threads": 1}})
            federation.add_site(plan, np.ones((case.rows, _COLUMNS)))
        flags = dict.fromkeys(("aggregator", "ca", "cert", "key"))
        with connected(connect_settings(flags, federation.operator_config)) as operator:
            children.until(lambda: all_connected(operator, names), "the sites' connection", _CONNECT_SECONDS)
            view, wall = _follow(operator, case.spec(names))
        return figures_of(view, wall, peak_bytes(children[AGGREGATOR].process.pid))


def _follow(operator: Operator, spec: bytes) -> tuple[pb.RunView, float]:
    """The finished run, and the seconds from the proposal to its end."""
    with Progress() as progress:
        began = time.monotonic()
        proposed = operator.propose(spec, uuid.uuid4().hex)
        view = Watch(operator, proposed.run_id, progress).follow()
    if error := unless_finished(view):
        raise error
    return view, time.monotonic() - began


def figures_of(view: pb.RunView, wall: float, peak: int | None) -> Figures:
    """The figures of a finished run."""
    worked = [one for one in view.rounds if one.round > 0]
    moved = sum(one.bytes_sent + one.bytes_received for one in worked)
    seconds = [one.seconds for one in worked]
    return Figures(
        median_round_s=median(seconds),
        min_round_s=min(seconds),
        mean_wall_round_s=wall / len(view.rounds),
        bytes_per_participant_round=moved / (len(worked) * len(view.enrolled)),
        aggregator_peak_bytes=peak,
    )


def peak_bytes(pid: int) -> int | None:
    """The most memory that a process had at a time, where the system tells."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    lines = [line.split() for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) * 1024 if lines else None


def _raw(case: Case, directory: Path) -> list[float]:
    names = site_names(case.participants)
    sites = {name: directory / "sites" / name for name in names}
    return measure_raw(directory / AGGREGATOR, sites, 8 * case.rows * case.rank, case.rounds)


def _shown(key: str, value: float | int | str | None) -> str:
    if value is None:
        return "–"
    if key.endswith("_s"):
        return f"{float(value) * 1000:.1f} ms" if float(value) < 1 else span(float(value))
    if "bytes" in key:
        return size(float(value))
    return str(value)

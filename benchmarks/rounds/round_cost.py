"""Measures what a round costs when nothing is computed: real processes, mutual TLS, the real protocol."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.local_federation import local_federation, pid_of, planned
from benchmarks.rounds.bare_grpc import BareFigures, measure_raw
from dcfpca.operator.client import Operator
from dcfpca.scaffold.config_texts import Tables
from dcfpca.scaffold.demo import site_names
from dcfpca.spec import parse_spec
from dcfpca.text.run_progress import RunProgress
from dcfpca.text.run_watch import follow_run, raise_unless_finished
from dcfpca.v1 import admin_pb2 as pb

_COLUMNS = 2


@dataclass(frozen=True, slots=True)
class RoundCase:
    """The federation, the tensor and the aggregation to measure."""

    participants: int
    rows: int
    rank: int
    rounds: int
    aggregation: str
    precision: int
    verify: str = "sampled"

    def spec(self, names: list[str]) -> bytes:
        """A spec whose run takes all its rounds: its tolerance is never met, and nothing follows them."""
        keys = {
            "label": "benchmarks.rounds",
            "rows": self.rows,
            "max_rank": self.rank,
            "closing_rounds": False,
            "rounds": self.rounds,
            "tolerance": 0.0,
            "participants": names,
            "aggregation": self.aggregation,
            "precision": self.precision,
            "round_seconds": 600.0,
        }
        return parse_spec(keys).canonical()


@dataclass(frozen=True, slots=True)
class AggregatorPlace:
    """Where the aggregator listens (on a free port of loopback, if empty), the hosts in its certificate, and the module
    that starts it, with its words."""

    listen: str = ""
    hosts: tuple[str, ...] = ("localhost", "127.0.0.1")
    starter: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """Seconds per round, from its opening to the consensus; the opening exchange (round 0) is not counted.

    `set_up_s` is from the end of enrolment to the opening of round 0, as the views of the run show it: to 0.1 s.
    `cpu_round_s` is the CPU of aggregator and sites together from the proposal to the end, shared out over the rounds;
    `aggregator_cpu_round_s` is the aggregator's part of it.
    """

    median_round_s: float
    min_round_s: float
    mean_wall_round_s: float
    bytes_per_participant_round: float
    aggregator_peak_bytes: int | None
    set_up_s: float = 0.0
    cpu_round_s: float = 0.0
    aggregator_cpu_round_s: float = 0.0


class SetUpClock:
    """Times the set-up of a run by its views."""

    def __init__(self) -> None:
        self._began: float | None = None
        self.seconds = 0.0

    def see(self, view: pb.RunView, now: float) -> None:
        """Take a view that came at this time."""
        setting_up = view.round == 0 and view.phase in ("advertising", "sharing")
        if setting_up and self._began is None:
            self._began = now
        if not setting_up and self._began is not None and not self.seconds:
            self.seconds = now - self._began


def measure_rounds(
    case: RoundCase,
    directory: Path,
    place: AggregatorPlace = AggregatorPlace(),
) -> RoundFigures:
    """Start a federation of idle sites below `directory`, run the case to its end, and stop the federation."""
    names = site_names(case.participants)
    policy: dict[str, str | int | float | bool] = {
        "allow_plain": True,
        "min_cohort": 2,
        "min_columns": 1,
        "max_rank": case.rank,
        "max_rounds": case.rounds,
        "verify": case.verify,
    }
    # The daemons of a bench share a machine, so none may starve the others.
    limits: Tables = {"limits": {"calls_per_second": 10_000.0, "call_burst": 10_000}}
    plan = planned(directory, names, {"policy": policy, "engine": {"kind": "idle", "threads": 1}}, limits)
    plan = replace(plan, listen=place.listen, hosts=place.hosts)
    data = dict.fromkeys(names, np.ones((case.rows, _COLUMNS)))
    with local_federation(directory, plan, data, list(place.starter)) as (consortium, operator):
        clock = SetUpClock()
        pids = [pid_of(consortium), *(pid_of(consortium, name) for name in names)]
        before, own = cpu_seconds(pids), cpu_seconds(pids[:1])
        view, wall = _follow(operator, case.spec(names), clock)
        spent, own = cpu_seconds(pids) - before, cpu_seconds(pids[:1]) - own
        found = figures_of(view, wall, peak_bytes(pids[0]), clock.seconds)
        count = len(view.rounds)
        return replace(found, cpu_round_s=spent / count, aggregator_cpu_round_s=own / count)


def _follow(operator: Operator, spec: bytes, clock: SetUpClock) -> tuple[pb.RunView, float]:
    """The finished run, and the seconds from the proposal to its end."""
    with RunProgress() as progress:
        began = time.monotonic()
        proposed = operator.propose(spec, uuid.uuid4().hex)
        view = follow_run(
            operator,
            proposed.run_id,
            progress,
            on_update=lambda history: clock.see(history.view, time.monotonic()),
        )
    raise_unless_finished(view)
    return view, time.monotonic() - began


def figures_of(view: pb.RunView, wall: float, peak: int | None, set_up: float = 0.0) -> RoundFigures:
    """The figures of a finished run."""
    worked = [one for one in view.rounds if one.round > 0]
    moved = sum(one.bytes_sent + one.bytes_received for one in worked)
    seconds = [one.seconds for one in worked]
    return RoundFigures(
        median_round_s=median(seconds),
        min_round_s=min(seconds),
        mean_wall_round_s=wall / len(view.rounds),
        bytes_per_participant_round=moved / (len(worked) * len(view.enrolled)),
        aggregator_peak_bytes=peak,
        set_up_s=set_up,
    )


def cpu_seconds(pids: list[int]) -> float:
    """The CPU that these processes have taken so far; 0 where /proc does not exist."""
    ticks = 0
    for pid in pids:
        stat = Path(f"/proc/{pid}/stat")
        if stat.exists():
            user, system = stat.read_text().rpartition(")")[2].split()[11:13]
            ticks += int(user) + int(system)
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int) -> int | None:
    """The peak resident memory of a process; None where /proc does not exist."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    lines = [line.split() for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(lines[0][1]) * 1024 if lines else None


def measure_bare_rounds(case: RoundCase, directory: Path) -> BareFigures:
    """What a bare gRPC exchange of as many bytes takes; uses the certificates that `measure_rounds` left."""
    names = site_names(case.participants)
    sites = {name: directory / "sites" / name for name in names}
    return measure_raw(directory / "aggregator", sites, 8 * case.rows * case.rank, case.rounds)

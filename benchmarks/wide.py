"""Many features, and many columns at a site: time, memory and bytes of the rounds of each stage.

    python -m benchmarks.wide --json benchmarks/results/wide.json

Three sites by real daemons over mutual TLS, secure sums, rank 10. The first series has 40 columns a site and ever more
features, the second 100 features and ever more columns; data is low-rank with noise and 1 % gross errors. Runs with
more features than `--closing` end with the fit. All daemons share this machine, so that seconds are those of all sites'
work together; bytes and memory are those of one site.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.local_federation import local_federation, pid_of, planned
from benchmarks.rounds.round_cost import cpu_seconds, peak_bytes
from dcfpca.rpca.method import FloatArray
from dcfpca.spec import parse_spec
from dcfpca.text.run_progress import RunProgress
from dcfpca.text.run_watch import follow_run, raise_unless_finished
from dcfpca.v1 import admin_pb2 as pb

SITES = ["a", "b", "c"]
ROWS, FEW_COLUMNS = [5_000, 50_000, 500_000], 40
COLUMNS, FEW_ROWS = [1_000, 10_000, 100_000], 100
FIT_ROUNDS = 6
PATIENCE = 3600.0


@dataclass(frozen=True)
class Case:
    """A federation to measure: features, columns of a site, and whether the closing rounds are held."""

    rows: int
    columns: int
    rank: int
    closing: bool

    def spec(self) -> bytes:
        """A secure run of a few rounds of fit."""
        keys = {"rows": self.rows, "rank": self.rank, "rounds": FIT_ROUNDS, "participants": SITES}
        keys |= {"closing_rounds": self.closing, "round_seconds": 3600.0, "scaling": "none"}
        return parse_spec(keys).canonical()


def table(case: Case, seed: int) -> FloatArray:
    """Low rank, noise and gross errors; the directions are the same at every site."""
    U = np.random.default_rng(0).standard_normal((case.rows, case.rank))
    rng = np.random.default_rng(seed)
    M = U @ rng.standard_normal((case.rank, case.columns))
    M += 0.5 * rng.standard_normal(M.shape)
    gross = rng.integers(0, M.size, M.size // 100)
    M.ravel()[gross] += rng.choice([-30.0, 30.0], gross.size)
    return M


def measure(case: Case, directory: Path) -> dict[str, Any]:
    """One run of the case by daemons below this directory, and their results."""
    policy = {"max_rounds": 1000}
    plan = planned(directory, SITES, {"policy": policy, "engine": {"threads": 1}})
    data = {name: table(case, 1 + place) for place, name in enumerate(SITES)}
    with local_federation(directory, plan, data) as (consortium, operator):
        del data
        pids = [pid_of(consortium), *(pid_of(consortium, name) for name in SITES)]
        idle, began, spent = [peak_bytes(pid) or 0 for pid in pids], time.monotonic(), cpu_seconds(pids)
        run = operator.propose(case.spec(), uuid.uuid4().hex).run_id
        with RunProgress() as progress:
            view = follow_run(operator, run, progress)
        raise_unless_finished(view)
        ended, before_results = time.monotonic(), [peak_bytes(pid) or 0 for pid in pids]
        await_results(directory, run)
        return {
            "rows": case.rows,
            "columns": case.columns,
            "rank": case.rank,
            "closing": case.closing,
            "run_seconds": ended - began,
            "results_seconds": time.monotonic() - ended,
            "cpu_seconds": cpu_seconds(pids) - spent,
            "aggregator_mib": [idle[0] / 2**20, before_results[0] / 2**20],
            "site_mib": [max(peaks[1:]) / 2**20 for peaks in (idle, before_results)],
            "site_with_results_mib": max(peak_bytes(pid) or 0 for pid in pids[1:]) / 2**20,
            "results_bytes": sum(file.stat().st_size for file in _results(directory, run, "a").rglob("*")),
            "stages": by_stage(view),
            "load": os.getloadavg()[0],
        }


def await_results(directory: Path, run: str) -> None:
    """Wait until every site has written its results."""
    end = time.monotonic() + PATIENCE
    while not all((_results(directory, run, name) / "manifest.json").exists() for name in SITES):
        assert time.monotonic() < end, "a site has not written its results"
        time.sleep(0.1)


def _results(directory: Path, run: str, site: str) -> Path:
    return directory / "sites" / site / "results" / run


def by_stage(view: pb.RunView) -> list[dict[str, Any]]:
    """Rounds, median seconds, and bytes of one site of every stage."""
    found = []
    for stage in dict.fromkeys(one.stage for one in view.rounds):
        own = [one for one in view.rounds if one.stage == stage]
        moved = median((one.bytes_sent + one.bytes_received) / len(SITES) for one in own)
        seconds, awaited = (median(getattr(one, name) for one in own) for name in ("seconds", "awaited_seconds"))
        found.append(
            {"stage": stage, "rounds": len(own), "seconds": seconds, "awaited_seconds": awaited, "site_bytes": moved}
        )
    return found


def main() -> None:
    """Measure both series, and write them: what an earlier record has of other sizes stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--columns", type=int, nargs="*", default=COLUMNS)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--closing", type=int, default=50_000, help="the most features with closing rounds")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    cases = [Case(rows, FEW_COLUMNS, given.rank, rows <= given.closing) for rows in given.rows]
    cases += [Case(FEW_ROWS, columns, given.rank, closing=True) for columns in given.columns]
    kept = json.loads(given.json.read_text()) if given.json and given.json.exists() else []
    known = {(one["rows"], one["columns"]): one for one in kept}
    for case in cases:
        with tempfile.TemporaryDirectory(prefix="dcfpca-bench-") as directory:
            known[case.rows, case.columns] = measure(case, Path(directory) / "home")
        print(json.dumps(known[case.rows, case.columns]), flush=True)
        if given.json:
            given.json.write_text(json.dumps([known[size] for size in sorted(known)], indent=1) + "\n")


if __name__ == "__main__":
    main()

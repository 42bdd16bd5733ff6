"""What ended runs leave in the memory of an aggregator and its sites: real daemons, one small run after another.

    python -m benchmarks.many_runs --runs 1000 --json benchmarks/results/many-runs.json

Resident memory after 10 runs, after 100 and so on. The aggregator keeps the newest hundred runs at hand, so that what
a run leaves for good is what comes after the first hundred.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.services.federation import Federation

SITES = ("alpha", "beta", "gamma")
SAMPLES, FEATURES = 24, 6
SPEC: dict[str, Any] = {"rank": 1, "rounds": 2, "tolerance": 0.0, "closing_rounds": False, "participants": SITES}
FIRST = 10
"""After so many runs everything that is made once is there."""


def measure(root: Path, runs: int, every: int) -> list[dict[str, Any]]:
    """The resident memory of each process in MiB, after the first runs and after every so many."""
    draw = np.random.default_rng(0)
    found, began = [], time.monotonic()
    # Processes that fork from one with everything imported would use room that it has freed before they grow.
    with Federation(root, fresh=True) as federation:
        federation.start_aggregator("info")
        for name in SITES:
            federation.add_site(name, draw.standard_normal((FEATURES, SAMPLES)))
        federation.start_sites(SITES)
        for number in range(1, runs + 1):
            federation.run(**SPEC)
            for process in federation.processes.values():
                process.lines.clear()
            if number in (FIRST, runs) or number % every == 0:
                found.append({"runs": number, "seconds": round(time.monotonic() - began, 1)} | resident(federation))
                print(json.dumps(found[-1]), flush=True)
    return found


def resident(federation: Federation) -> dict[str, float]:
    """The resident memory of each process now, in MiB."""
    return {name: round(process.memory_kib() / 1024, 2) for name, process in federation.processes.items()}


def main() -> None:
    """Measure, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dcfpca-bench-") as directory:
        found = measure(Path(directory), given.runs, given.every)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

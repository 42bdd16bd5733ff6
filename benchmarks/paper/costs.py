"""The paper's cost claims on the real system: bytes per round, and the time of a round by the number of sites E.

    python -m benchmarks.paper.costs exchange --out benchmarks/results/paper-costs-exchange.json
    python -m benchmarks.paper.costs sites --out benchmarks/results/paper-costs-sites.json

`exchange` runs `benchmarks.rounds`: real processes, mutual TLS, the real protocol, sites that compute nothing.
`sites` times a site's local step on n/E columns, and the aggregator's own step, each alone on one thread. The time of a
round at E sites is composed of the two, because this machine has not E others: the slowest site's step (all run at
once), the aggregator's step, and the exchange, which grows with E.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.gradient.stages import GradientSolver, gradient_method
from dcfpca.rpca.method import Total
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.subspace.fit import subspace_method
from dcfpca.rpca.subspace.solver import SubspaceSolver
from dcfpca.rpca.synthetic import Recipe, generate

ROWS, RANK = 500, 25
COHORTS = (3, 6, 12, 24)
COLUMNS = (4000, 16000, 64000, 256000)
MOST_COLUMNS = 64000  # at one site, for memory's sake
SITES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["exchange", "sites"])
    parser.add_argument("--sizes", type=int, nargs="*", help="cohorts of `exchange`, or columns of `sites`")
    parser.add_argument("--out", type=Path, required=True)
    wanted = parser.parse_args()
    document = exchange(wanted.sizes or COHORTS) if wanted.part == "exchange" else sites(wanted.sizes or COLUMNS)
    wanted.out.write_text(json.dumps(document, indent=1) + "\n")
    print(wanted.out)


def exchange(cohorts: Sequence[int]) -> dict[str, Any]:
    """Bytes and seconds of real rounds by cohort, plain and secure."""
    rows = [_rounds(cohort, kind) for kind in ("plain", "secure") for cohort in cohorts]
    return {"rows": ROWS, "rank": RANK, "runs": rows}


def _rounds(cohort: int, aggregation: str) -> dict[str, Any]:
    words = ["--participants", cohort, "--rows", ROWS, "--rank", RANK, "--rounds", 12, "--aggregation", aggregation]
    command = [sys.executable, "-m", "benchmarks.rounds", *map(str, words), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


@dataclass(frozen=True, slots=True)
class Step:
    """CPU seconds of one round at the largest of E sites, and at the aggregator."""

    method: str
    columns: int
    sites: int
    site_seconds: float
    aggregator_seconds: float


def sites(columns: Sequence[int]) -> dict[str, Any]:
    """A site's step by how many share the n columns."""
    with threadpool_limits(1):
        steps = [
            _step(name, n, count)
            for name in ("gradient", "subspace")
            for n in columns
            for count in SITES
            if n / count <= MOST_COLUMNS
        ]
        adding = _adding()
    return {"rows": ROWS, "rank": RANK, "adding_seconds": adding, "steps": [asdict(step) for step in steps]}


def _step(name: str, columns: int, count: int) -> Step:
    """The site is one of `count` equal ones; the others are played by copies of its answer, which cost the same."""
    own = -(-columns // count)
    problem = generate(Recipe(ROWS, max(own, RANK), RANK), 0)
    method: Method = (
        gradient_method(GradientSolver(ROWS, RANK, ROUNDS))
        if name == "gradient"
        else subspace_method(SubspaceSolver(ROWS, RANK, ROUNDS, 0.0))
    )
    site, consensus = method.site(ArrayColumns(problem.M[:, :own])), method.begin()
    at_site, at_aggregator = list[float](), list[float]()
    while consensus.outcome is None:
        began = time.process_time()
        answer = site.answer(consensus)
        answered = time.process_time()
        total = type(answer)(answer.tensor * count, answer.scalars * count)
        summed = time.process_time()
        consensus = method.advance(consensus, Total(total, count))
        at_site.append(answered - began)
        at_aggregator.append(time.process_time() - summed)
    return Step(name, columns, count, median(at_site[2:]), median(at_aggregator[2:]))


def _adding() -> float:
    """Seconds to add one masked update of m × r to the running sum."""
    total, update = np.zeros(ROWS * RANK, np.uint64), np.ones(ROWS * RANK, np.uint64)
    began = time.process_time()
    for _ in range(1000):
        total += update
    return (time.process_time() - began) / 1000


if __name__ == "__main__":
    main()

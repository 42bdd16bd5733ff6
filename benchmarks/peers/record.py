"""Time to an error against the strongest solvers for one machine, which see all the data: who wins where.

    python -m benchmarks.peers.record --sizes 500 1000 --json benchmarks/results/peers.json

One thread, CPU seconds of this process, everything in turn in one run; r = n/20 unless `--rank` says otherwise, 5 % of
the entries outliers. Ours has ten sites in sequence and default settings. Packages that are installed (`pip install
'dcfpca[bench]'`) have a process and a time limit of their own. With `--json`, what is measured again replaces its old
rows. The full set: sizes 500, 1000 and 3000, and 3000 with `--rank 5`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.peers.packaged_peers import LIMIT_SECONDS, packaged
from benchmarks.peers.solver_race import baseline_peers, race
from dcfpca.rpca.column_blocks import equal_counts
from dcfpca.rpca.method import FloatArray
from dcfpca.rpca.synthetic import Outliers, Problem, Recipe, generate, relative_squared_error

Row = dict[str, object]
KINDS = (Outliers.IMPULSE, Outliers.UNIFORM)
MISLED_UP_TO = 1000


def problem_of(size: int, rank: int, kind: Outliers) -> Problem:
    return generate(Recipe(size, size, rank, 0.05, kind, counts=equal_counts(size, 10)), 0)


def case(size: int, rank: int, kind: Outliers, repeats: int, solvers: list[str], limit: float) -> Iterator[Row]:
    about: Row = {"size": size, "rank": rank, "outliers": kind.value}
    problem = problem_of(size, rank, kind)
    began, load = time.perf_counter(), os.getloadavg()[0]
    peers = [peer for peer in baseline_peers(problem) if not solvers or peer.name in solvers]
    rows = [asdict(finish) for finish in race(problem, peers, repeats)]
    took = {"load": load, "repeats": repeats, "wall_seconds_of_case": time.perf_counter() - began}
    yield from ({**about, **row, **took} for row in rows)
    if not solvers:
        yield from ({**about, **asdict(finish), **took} for finish in packaged(problem, repeats, limit))
    if size <= MISLED_UP_TO and not solvers:
        yield from ({**about, **row} for row in misled(problem))


def misled(problem: Problem) -> Iterator[Row]:
    """What the peers that must be told the rank make of twice the rank: the smallest error they come to."""
    told = replace(problem, rank=2 * problem.rank)
    with threadpool_limits(1):
        for peer in baseline_peers(told):
            if peer.told != "nothing":
                smallest = _smallest_error(peer.run, problem)
                yield {"solver": peer.name, "told": "twice the rank", "setting": peer.setting} | {
                    "smallest_squared_error_L": smallest}  # fmt: skip


def _smallest_error(run: Callable[..., object], problem: Problem) -> float:
    smallest = np.inf

    def look(_: int, L: FloatArray, __: FloatArray) -> None:
        nonlocal smallest
        smallest = min(smallest, relative_squared_error(L, problem.L))

    run(40, look)
    return float(smallest)


def merged(path: Path, rows: list[Row]) -> list[Row]:
    """The rows of the file without those that were measured again, and the new ones."""
    old: list[Row] = json.loads(path.read_text()) if path.exists() else []
    again = {_place(row) for row in rows}
    return [row for row in old if _place(row) not in again] + rows


def _place(row: Row) -> tuple[object, ...]:
    return tuple(row[key] for key in ("size", "rank", "outliers", "solver"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[500, 1000])
    parser.add_argument("--rank", type=int)
    parser.add_argument("--outliers", type=Outliers, nargs="+", default=list(KINDS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--solvers", nargs="+", default=[], help="only these peers beside ours, by name")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds that a package may take")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    for size in wanted.sizes:
        for kind in wanted.outliers:
            rows: list[Row] = []
            for row in case(size, wanted.rank or size // 20, kind, wanted.repeats, wanted.solvers, wanted.limit):
                print(json.dumps(row), flush=True)
                rows.append(row)
            if wanted.json:
                wanted.json.write_text(json.dumps(merged(wanted.json, rows), indent=1) + "\n")


if __name__ == "__main__":
    main()

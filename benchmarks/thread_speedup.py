"""One site's local step on one thread and on two, and several sites at once on the same cores.

    python -m benchmarks.thread_speedup --json benchmarks/results/thread-speedup.json

Both cores must be free: run it on a quiet machine. The daemon's engine answers the same broadcasts with one thread and
with two, in turns, so that whatever the machine does meets both; a figure is the best of the repeats. Beside it stands
what the machine itself gains by a second thread: reading memory, a triad (a ← b + c) and matrix products.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.out_of_core import forget, generate, read_once
from dcfpca.freed_memory import keep_freed_memory
from dcfpca.methods import method_of
from dcfpca.rpca.column_blocks import ArrayColumns
from dcfpca.rpca.kernels.compiled_loops import load_loops
from dcfpca.rpca.method import Columns, Consensus, Total
from dcfpca.rpca.stage_list import Method
from dcfpca.rpca.synthetic import Recipe
from dcfpca.rpca.synthetic import generate as problem_of
from dcfpca.spec import parse_spec
from participant.config import EngineTable
from participant.data.data_config import DataTable
from participant.data.readers import open_matrix
from participant.engine.partitioned_site import PartitionedSite
from participant.engine.thread_engine import Engine

THREADS = (1, 2)
RANKS = (5, 50, 150)
DISK_ROWS, DISK_RANK, DISK_LIMIT = 1000, 20, "256 MiB"
ROUNDS = 7  # the opening, two sketching rounds of one pass, and rounds as most of a run are
SITES_BESIDE, RANK_BESIDE = 4, 20
Row = dict[str, Any]


def steps(method: Method, columns: Columns, engine: Engine, answers: list[Consensus]) -> tuple[list[float], int]:
    """Wall seconds of the local step in each of these rounds, and into how many parts the columns were split."""
    site, seconds = engine.site(method, columns), []
    for consensus in answers:
        began = time.perf_counter()
        site.answer(consensus)
        seconds.append(time.perf_counter() - began)
    return seconds, len(site.parts) if isinstance(site, PartitionedSite) else 1


def played(method: Method, columns: Columns, rounds: int) -> list[Consensus]:
    """The consensus before each of the first rounds, as the aggregator would make it from this site alone."""
    with closing(Engine(2)) as engine:
        site, consensus, found = engine.site(method, columns), method.begin(), list[Consensus]()
        while consensus.outcome is None and len(found) < rounds:
            found.append(consensus)
            update = site.answer(consensus)
            consensus = method.advance(consensus, Total(update, 1))
    return found


def method_for(rows: int, rank: int) -> Method:
    return method_of(parse_spec({"rows": rows, "rank": rank, "rounds": 50, "tolerance": 0}))


def compared(method: Method, columns: Columns, repeats: int, limit: int = 0, spool: Path | None = None) -> Row:
    """The same rounds on one thread and on two, in turns."""
    answers, seconds, parts = played(method, columns, ROUNDS), dict[int, list[list[float]]](), dict[int, int]()
    cpu: dict[int, float] = {}
    for _ in range(repeats):
        for threads in THREADS:
            with closing(Engine(threads, memory_limit=limit, scratch=spool)) as engine:
                began = time.process_time()
                took, parts[threads] = steps(method, columns, engine, answers)
                spent = time.process_time() - began
            seconds.setdefault(threads, []).append(took)
            cpu[threads] = min(cpu.get(threads, np.inf), spent)
    best = {threads: [min(round) for round in zip(*taken, strict=True)] for threads, taken in seconds.items()}
    late = {threads: min(taken[-2:]) for threads, taken in best.items()}
    total = {threads: sum(taken) for threads, taken in best.items()}
    return {
        "parts": parts[2], "seconds": by_threads(best), "cpu_seconds": by_threads(cpu), "late_round": by_threads(late),
        "ratio": total[1] / total[2], "late_ratio": late[1] / late[2],
    }  # fmt: skip


def by_threads(found: Mapping[int, object]) -> dict[str, object]:
    return {str(threads): found[threads] for threads in THREADS}


def in_memory(repeats: int, size: int) -> Iterator[Row]:
    for rank in (rank for rank in RANKS if rank < size // 4):
        problem = problem_of(Recipe(size, size, rank, 0.05), 0)
        yield {"case": "in memory", "rows": size, "columns": size, "rank": rank} | compared(
            method_for(size, rank), ArrayColumns(problem.M), repeats
        )


def out_of_core(repeats: int, gib: float) -> Iterator[Row]:
    """A file that the page cache holds, so that the disk is not what is measured; reading it cold stands beside."""
    with tempfile.TemporaryDirectory(prefix="dcfpca-bench-") as folder:
        path, columns = Path(folder) / "M.npy", int(gib * 2**30 / 8 / DISK_ROWS)
        generate(path, DISK_ROWS, columns, DISK_RANK)
        limit, spool = EngineTable(memory_limit=DISK_LIMIT).memory_limit, Path(folder) / "spool"
        matrix = open_matrix(DataTable(path=path), spool, limit).columns
        cold = read_once(path)
        forget(path)
        row = compared(method_for(DISK_ROWS, DISK_RANK), matrix, repeats, limit, spool)
        about = {"case": "out of core", "rows": DISK_ROWS, "columns": columns, "rank": DISK_RANK, "gib": gib}
        yield about | {"cold_read_seconds": cold, "limit": DISK_LIMIT} | row


def machine(size: int) -> Row:
    """How much faster two threads are than one at reading memory, at a triad and at matrix products."""
    a, b, c = (np.ones(2 * size * size) for _ in range(3))  # far more than any cache holds
    A, B = np.ones((size // 3, size // 3)), np.ones((size // 3, size // 3))
    works: dict[str, Callable[[slice], object]] = {
        "read": lambda part: np.vdot(a[part], a[part]),
        "triad": lambda part: np.add(b[part], c[part], out=a[part]),
        "product": lambda part: A @ B,
    }
    found: Row = {}
    with ThreadPoolExecutor(2) as pool:
        for name, work in works.items():
            pieces = 32 if name == "product" else 256
            taken = {1: np.inf, 2: np.inf}
            for _ in range(5):
                for threads in THREADS:
                    began = time.perf_counter()
                    list(pool.map(partial(_share, work, a.size, pieces, threads), range(threads)))
                    taken[threads] = min(taken[threads], time.perf_counter() - began)
            found[name] = taken[1] / taken[2]
            if name == "read":
                found["read_gib_per_second"] = [a.nbytes / 2**30 / taken[threads] for threads in THREADS]
    return found


def _share(work: Callable[[slice], object], size: int, pieces: int, threads: int, place: int) -> None:
    each = size // pieces
    for piece in range(place, pieces, threads):
        work(slice(piece * each, (piece + 1) * each))


def beside(repeats: int, size: int) -> Row:
    """Seconds until several sites in processes of their own, begun together, have all done their rounds: by threads."""
    taken: dict[str, float] = {}
    for _ in range(repeats):
        for threads in THREADS:
            words = [sys.executable, "-m", "benchmarks.thread_speedup", "--worker", str(threads), "--size", str(size)]
            begun = [
                subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                for _ in range(SITES_BESIDE)
            ]
            for one in begun:
                assert one.stdout is not None
                one.stdout.readline()
            started = time.perf_counter()
            for one in begun:
                one.communicate("go\n")
            took = time.perf_counter() - started
            taken[str(threads)] = min(taken.get(str(threads), np.inf), took)
    shape = {"rows": size, "columns": size // 2, "rank": RANK_BESIDE}
    return {"sites": SITES_BESIDE, **shape, "seconds": taken, "ratio": taken["2"] / taken["1"]}


def worker(threads: int, size: int) -> None:
    """One of the sites of `beside`: ready, waits for a line, does its rounds."""
    problem = problem_of(Recipe(size, size // 2, RANK_BESIDE, 0.05), 0)
    method, columns = method_for(size, RANK_BESIDE), ArrayColumns(problem.M)
    answers = played(method, columns, ROUNDS)
    print("ready", flush=True)
    sys.stdin.readline()
    with closing(Engine(threads)) as engine:
        steps(method, columns, engine, answers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", type=int, default=3000, help="rows and columns of the matrix in memory")
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    keep_freed_memory()  # as the daemon does
    load_loops([5])
    if given.worker:
        worker(given.worker, given.size)
        return
    rows = []
    with threadpool_limits(1):
        for row in chain(in_memory(given.repeats, given.size), out_of_core(given.repeats, given.gib)):
            print(json.dumps(row), file=sys.stderr, flush=True)
            rows.append(row)
        found = {"repeats": given.repeats, "load": os.getloadavg()[0], "machine": machine(given.size), "steps": rows}
        found["beside"] = beside(given.repeats, given.size)
    text = json.dumps(found, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()

"""A matrix larger than memory at one site: peak memory, and time per round against one read of the file.

    python -m benchmarks.out_of_core --gib 4 --memory-limit 512MiB --json out.json

The matrix is made on disk (m × n, low rank with noise and gross errors). A process of its own then does what a daemon
does with it: the opening exchange and some rounds of `subspace` by the daemon's engine, each saved to disk like a
daemon's step, and the result. Its peak resident memory is what is reported. Before every round the file is read once
from start to end as a yardstick; the page cache is emptied of it before each reading and each round, so that both read
the disk.

With `--dask` the columns are at the workers of a local cluster: CPU and reads are of all processes together, peaks are
those of this process and of the largest worker.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import participant.daemon  # noqa: F401  so that a daemon's own memory is counted
from dcfpca.atomic_files import atomic_write
from dcfpca.freed_memory import keep_freed_memory
from dcfpca.methods import method_of
from dcfpca.rpca.method import Columns, Consensus, Total
from dcfpca.rpca.stage import Site
from dcfpca.spec import parse_spec
from dcfpca.terms import Terms
from participant.config import EngineTable
from participant.data.data_config import DataTable
from participant.data.readers import open_matrix
from participant.engine.dask_engine import DaskEngine
from participant.engine.thread_engine import Engine
from participant.results.manifest import ResultFacts
from participant.results.writing import write_results
from participant.state.step_files import write_arrays

BATCH = 4096
NOISE = 0.5  # deviations, where the low-rank part has √rank


def main() -> None:
    options = _options()
    if options.worker:
        keep_freed_memory()  # as the daemon does
        print(json.dumps(measure(options)))
        return
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="out-of-core-") as folder:
        path = Path(folder) / "M.npy"
        columns = int(options.gib * 2**30 / 8 / options.rows)
        generate(path, options.rows, columns, options.rank)
        words = [sys.executable, "-m", "benchmarks.out_of_core", *sys.argv[1:], "--worker", str(path)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(done.returncode)
    report = json.loads(done.stdout)
    text = json.dumps(report, indent=2)
    if options.json:
        Path(options.json).write_text(text + "\n")
    print(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=4.0)
    parser.add_argument("--memory-limit", default="512 MiB")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as there are cores")
    parser.add_argument("--dask", action="store_true", help="compute on a local Dask cluster")
    parser.add_argument("--finish", action="store_true", help="also write the result")
    parser.add_argument("--dir", default=None, help="where the matrix is made")
    parser.add_argument("--json", default="")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def generate(path: Path, rows: int, columns: int, rank: int) -> None:
    """Low rank plus noise and 1 % gross errors, written column by column."""
    rng = np.random.default_rng(0)
    U = rng.standard_normal((rows, rank))
    with path.open("wb") as file:
        shape = {"descr": "<f8", "fortran_order": True, "shape": (rows, columns)}
        np.lib.format.write_array_header_1_0(file, shape)
        for start in range(0, columns, BATCH):
            width = min(BATCH, columns - start)
            block = rng.standard_normal((width, rank)) @ U.T
            block += NOISE * rng.standard_normal(block.shape)
            gross = rng.integers(0, block.size, block.size // 100)
            block.ravel()[gross] += rng.choice([-100.0, 100.0], gross.size)
            file.write(block.data)


def forget(path: Path) -> None:
    """Empty the page cache of this file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_once(path: Path) -> float:
    """Seconds that it takes to read the file from start to end."""
    forget(path)
    started = time.perf_counter()
    buffer = bytearray(8 << 20)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - started


def measure(options: argparse.Namespace) -> dict[str, Any]:
    path, before = Path(options.worker), peak_mib()
    limit = EngineTable(memory_limit=options.memory_limit).memory_limit
    columns = open_matrix(DataTable(path=path), path.parent / "spool", limit).columns
    spec = parse_spec({"rows": options.rows, "max_rank": options.rank, "rounds": options.rounds, "tolerance": 0})
    engine = engine_of(options, path, limit)
    method = method_of(spec)
    rounds: list[dict[str, Any]] = []
    site, consensus = engine.site(method, columns), method.begin()
    while consensus.outcome is None:
        reading = read_once(path)
        forget(path)
        started, spent, read = time.perf_counter(), cpu_seconds(), bytes_read()
        update = site.answer(consensus)
        save(path.parent / "run.step", site)
        seconds, cpu = time.perf_counter() - started, cpu_seconds() - spent
        took = {"read_seconds": reading, "seconds": seconds, "ratio": seconds / reading, "cpu_seconds": cpu}
        rounds.append({"stage": consensus.stage, **took, "reads": (bytes_read() - read) / path.stat().st_size})
        print(json.dumps(rounds[-1] | {"peak_mib": peak_mib()}), file=sys.stderr, flush=True)
        consensus = method.advance(consensus, Total(update, 1))
    report = {
        "gib": path.stat().st_size / 2**30,
        "shape": list(columns.shape),
        "rank": options.rank,
        "threads": engine.threads,
        "memory_limit_mib": limit / 2**20,
        "dask": options.dask,
        "peak_before_mib": before,
        "peak_mib": peak_mib(),
        "program_mib": status_mib("RssFile"),
        "peak_over_limit": peak_mib() * 2**20 / limit,
        "coefficients_mib": columns.shape[1] * options.rank * 8 / 2**20,
        "opening": rounds[0],
        "rounds": rounds[1:],
        "stages": by_stage(rounds),
        "reads": sum(one["reads"] for one in rounds),
        "read_once_seconds": median(one["read_seconds"] for one in rounds),
        "round_seconds": [one["seconds"] for one in rounds[1:]],
        "median_ratio": median(one["ratio"] for one in rounds[1:]),
        "load_average": os.getloadavg(),
    }
    if options.finish:
        report |= finish(path, Terms.of(spec), site, consensus, columns)
        report["program_with_finish_mib"] = status_mib("RssFile")
    if options.dask:
        report["largest_worker_mib"] = max(peak_mib(worker) for worker in processes()[1:])
    engine.close()
    return report


def engine_of(options: argparse.Namespace, path: Path, limit: int) -> Engine:
    """The engine that a daemon with these options has."""
    if options.dask:
        return DaskEngine("", DataTable(path=path), options.threads)
    return Engine(options.threads, memory_limit=limit, scratch=path.parent / "spool")


def by_stage(rounds: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rounds and medians of every stage."""
    found = []
    for stage in dict.fromkeys(one["stage"] for one in rounds):
        own = [one for one in rounds if one["stage"] == stage]
        figures = {name: median(one[name] for one in own) for name in ("seconds", "cpu_seconds", "reads")}
        found.append({"stage": stage, "rounds": len(own), **figures})
    return found


def processes() -> list[int]:
    """This process, and those that it has begun."""
    found = [os.getpid()]
    for parent in found:
        for thread in Path(f"/proc/{parent}/task").iterdir():
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def bytes_read() -> int:
    """What these processes have read of files so far, from the disk or not: of the matrix, and of its parts' states."""
    return sum(int(Path(f"/proc/{one}/io").read_text().split()[1]) for one in processes())


def cpu_seconds() -> float:
    """What these processes have computed so far."""
    stats = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in processes()]
    return sum(int(one[11]) + int(one[12]) for one in stats) / os.sysconf("SC_CLK_TCK")


def save(path: Path, site: Site) -> None:
    """As the daemon does before anything leaves."""
    atomic_write(path, lambda file: write_arrays(file, site.snapshot()))


def finish(path: Path, terms: Terms, site: Site, consensus: Consensus, columns: Columns) -> dict[str, Any]:
    finding = ResultFacts("run", "site", bytes(32), consensus.round, "", "")
    started, spent, read = time.perf_counter(), cpu_seconds(), bytes_read()
    write_results(path.parent / "results", finding, terms, site, consensus, columns)
    reads = (bytes_read() - read) / path.stat().st_size
    took = {"finish_seconds": time.perf_counter() - started, "finish_cpu_seconds": cpu_seconds() - spent}
    return took | {"finish_reads": reads, "peak_with_finish_mib": peak_mib()}


def peak_mib(process: int | str = "self") -> float:
    """Peak resident memory of a process; it never falls."""
    return status_mib("VmHWM", process)


def status_mib(name: str, process: int | str = "self") -> float:
    """A figure of a process's status: its peak, or, as `RssFile`, the pages of program files, which are not copied and
    which the kernel drops where memory is short."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()

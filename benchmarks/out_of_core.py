"""A matrix larger than memory at one site: peak memory, and time per round against one read of the file.

    python benchmarks/out_of_core.py --gib 4 --memory-limit 512MiB --json out.json

The matrix is made on disk (m × n, low rank with gross errors), read once as a yardstick, then taken through the opening
exchange and some rounds of `subspace` by a process of its own, whose peak resident memory is what is reported. The
page cache is emptied of the file before every pass, so that each pass reads the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from dcfpca.methods import method_of
from dcfpca.rpca.exchange import Total
from dcfpca.spec import parse_spec
from participant.config import _in_bytes
from participant.data import DataTable, open_matrix
from participant.results import Finding, write_results

BATCH = 4096


def main() -> None:
    options = _options()
    if options.worker:
        print(json.dumps(measure(options)))
        return
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="out-of-core-") as folder:
        path = Path(folder) / "M.npy"
        columns = int(options.gib * 2**30 / 8 / options.rows)
        generate(path, options.rows, columns, options.rank)
        words = [sys.executable, __file__, *sys.argv[1:], "--worker", str(path)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=_one_thread(options.threads))
        if done.returncode:
            sys.exit(done.stderr)
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
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--finish", action="store_true", help="also write the result")
    parser.add_argument("--dir", default=None, help="where the matrix is made")
    parser.add_argument("--json", default="")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _one_thread(threads: int) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}


def generate(path: Path, rows: int, columns: int, rank: int) -> None:
    """Low rank plus 1 % gross errors, written column by column."""
    rng = np.random.default_rng(0)
    U = rng.standard_normal((rows, rank))
    with path.open("wb") as file:
        shape = {"descr": "<f8", "fortran_order": True, "shape": (rows, columns)}
        np.lib.format.write_array_header_1_0(file, shape)
        for start in range(0, columns, BATCH):
            width = min(BATCH, columns - start)
            block = rng.standard_normal((width, rank)) @ U.T
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
    path = Path(options.worker)
    reading = read_once(path)
    limit = _in_bytes(options.memory_limit)
    before = peak_mib()
    columns = open_matrix(DataTable(path=path), path.parent / "spool", limit).columns
    spec = parse_spec({"rows": options.rows, "max_rank": options.rank, "rounds": options.rounds, "tolerance": 0})
    method = method_of(spec)
    site, consensus, seconds, work = method.site(columns), method.begin(), [], []
    while consensus.outcome is None:
        forget(path)
        started, spent = time.perf_counter(), time.process_time()
        update = site.answer(consensus.round, consensus.broadcast)
        seconds.append(time.perf_counter() - started)
        work.append(time.process_time() - spent)
        consensus = method.advance(consensus, Total(update, 1))
    report = {
        "gib": path.stat().st_size / 2**30,
        "shape": list(columns.shape),
        "rank": options.rank,
        "threads": options.threads,
        "memory_limit_mib": limit / 2**20,
        "peak_mib": peak_mib(),
        "peak_before_mib": before,
        "coefficients_mib": columns.shape[1] * options.rank * 8 / 2**20,
        "read_once_seconds": reading,
        "opening_seconds": seconds[0],
        "round_seconds": seconds[1:],
        "round_cpu_seconds": work[1:],
        "load_average": os.getloadavg(),
        "round_over_read": [value / reading for value in seconds[1:]],
    }
    if options.finish:
        report |= finish(path, spec, site, consensus, columns.shape[1])
    return report


def finish(path: Path, spec: Any, site: Any, consensus: Any, columns: int) -> dict[str, Any]:
    finding = Finding("run", "site", bytes(32), consensus.round, "", "")
    started = time.perf_counter()
    write_results(path.parent / "results", finding, spec, site, consensus.broadcast, columns)
    return {"finish_seconds": time.perf_counter() - started, "peak_with_finish_mib": peak_mib()}


def peak_mib() -> float:
    """Peak resident memory of this process; it never falls."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()

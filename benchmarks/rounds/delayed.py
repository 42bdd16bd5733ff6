"""How many round trips a round takes over a line with delay: aggregator and sites in two network namespaces.

    python -m benchmarks.rounds.delayed --json benchmarks/results/delayed-rounds.json

Every frame between the two is delayed by 50 ms each way (`delaying_hub`). Needs root and /dev/net/tun. The
same run is measured with and without the delay; what the delay adds, in units of a round trip of 100 ms, is compared
with what it adds to a bare exchange of the same bytes over TCP, which is one round trip and the transfer.

    python -m benchmarks.rounds.delayed --slow-line benchmarks/results/slow-line.json

Whole runs over one line of 100 Mbit/s with that delay, which all sites share. `--quick` takes both with three sites and
small matrices.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.rounds.network_namespace import enter
from benchmarks.rounds.round_cost import AggregatorPlace, RoundCase, RoundFigures, measure_rounds

AGGREGATOR, SITES = f"dcfpca-agg-{os.getpid()}", f"dcfpca-sites-{os.getpid()}"
HOST, OTHER, PORT, BARE_PORT = "10.77.0.1", "10.77.0.2", 7443, 7444
DELAY_MS = 50.0
ROUND_TRIP = 2.0 * DELAY_MS / 1000.0
SLOW_KBIT = 100_000


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured: shapes of the rounds by their aggregation, and of the whole runs over the slow line."""

    participants: int
    rounds: int
    cases: dict[tuple[int, int], tuple[str, ...]]
    slow: tuple[int, int, int]
    slow_ways: tuple[tuple[str, int], ...]


FULL = Extent(
    10, 10, {(100, 4): ("plain", "secure"), (1000, 50): ("secure",)}, (1000, 20, 12),
    (("plain", 64), ("secure", 64), ("secure", 32)),
)  # fmt: skip
QUICK = Extent(3, 3, {(20, 2): ("secure",)}, (20, 2, 3), (("secure", 64),))


@contextmanager
def two_namespaces(rules: Path) -> Iterator[None]:
    """The two namespaces, joined by the hub; this process is in that of the sites afterwards."""
    rules.write_text("{}")
    for name in (AGGREGATOR, SITES):
        subprocess.run(["ip", "netns", "add", name], check=True)
    words = ["-m", "benchmarks.rounds.delaying_hub", str(rules), f"{AGGREGATOR}={HOST}/24", f"{SITES}={OTHER}/24"]
    try:
        with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE) as hub:
            try:
                assert hub.stdout is not None
                assert hub.stdout.readline().strip() == b"READY", "the hub did not start"
                enter(SITES)
                yield
            finally:
                hub.terminate()
    finally:
        for name in (AGGREGATOR, SITES):
            subprocess.run(["ip", "netns", "del", name], check=False)


def delay(rules: Path, milliseconds: float, kilobits: int = 0) -> None:
    """Delay every frame each way from now on, and limit the line; the hub reads its rules every 50 ms."""
    limit = {"rate_kbit": kilobits} if kilobits else {}
    rules.write_text(json.dumps({"delay_ms": milliseconds, **limit}))
    time.sleep(0.5)


def serve(parties: int, size: int, rounds: int) -> None:
    """The bare exchange's server: sends everybody a block, and the next one when all have sent theirs back."""
    with socket.create_server((HOST, BARE_PORT)) as listener, ExitStack() as open_ones:
        ends = [open_ones.enter_context(listener.accept()[0]) for _ in range(parties)]
        block, seconds = bytes(size), []
        for _ in range(rounds):
            began = time.monotonic()
            senders = [threading.Thread(target=end.sendall, args=(block,)) for end in ends]
            for sender in senders:
                sender.start()
            for end in ends:
                _receive(end, size)
            seconds.append(time.monotonic() - began)
        print(json.dumps(seconds), flush=True)


def _receive(end: socket.socket, size: int) -> None:
    left = size
    while left:
        data = end.recv(min(left, 1 << 20))
        if not data:
            raise ConnectionError("the other end of the bare exchange hung up")
        left -= len(data)


def _echo(size: int, rounds: int) -> None:
    for _ in range(100):
        try:
            end = socket.create_connection((HOST, BARE_PORT), timeout=60)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    with end:
        for _ in range(rounds):
            _receive(end, size)
            end.sendall(bytes(size))


def bare_exchange(size: int, extent: Extent) -> float:
    """The median seconds of one exchange of this many bytes each way with everybody, over TCP alone."""
    words = ["-m", "benchmarks.rounds.network_namespace", AGGREGATOR, "benchmarks.rounds.delayed", "--serve", str(size)]
    words += ["--quick"] if extent is QUICK else []
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE) as server:
        sites = [threading.Thread(target=_echo, args=(size, extent.rounds)) for _ in range(extent.participants)]
        for site in sites:
            site.start()
        for site in sites:
            site.join()
        assert server.stdout is not None
        return median(json.loads(server.stdout.readline())[1:])


def run_of(case: RoundCase) -> RoundFigures:
    """A run of this case between the two namespaces."""
    starter = ("benchmarks.rounds.network_namespace", AGGREGATOR)
    place = AggregatorPlace(f"{HOST}:{PORT}", (HOST,), starter)
    with tempfile.TemporaryDirectory(prefix="dcfpca-bench-") as directory:
        return measure_rounds(case, Path(directory), place)


def measure(rules: Path, extent: Extent, rows: int, rank: int) -> Iterator[dict[str, Any]]:
    """Rounds of one shape, with and without delay."""
    bare = {}
    for milliseconds in (0.0, DELAY_MS):
        delay(rules, milliseconds)
        bare[milliseconds] = bare_exchange(8 * rows * rank, extent)
    for aggregation in extent.cases[rows, rank]:
        case = RoundCase(extent.participants, rows, rank, extent.rounds, aggregation, 64)
        found = {}
        for milliseconds in (0.0, DELAY_MS):
            delay(rules, milliseconds)
            found[milliseconds] = run_of(case).median_round_s
        added = (found[DELAY_MS] - found[0.0]) / ROUND_TRIP
        transfer = (bare[DELAY_MS] - bare[0.0]) / ROUND_TRIP - 1.0
        yield {
            **asdict(case),
            "one_way_ms": DELAY_MS,
            "round_s": found[0.0],
            "delayed_round_s": found[DELAY_MS],
            "bare_s": bare[0.0],
            "delayed_bare_s": bare[DELAY_MS],
            "round_trips": added,
            "round_trips_beyond_transfer": added - max(transfer, 0.0),
            "load": os.getloadavg()[0],
        }


def measure_runs(rules: Path, extent: Extent) -> Iterator[dict[str, Any]]:
    """Whole runs over the slow line, and what it must take: the transfer, two round trips a round, and the work."""
    slow_rows, slow_rank, slow_rounds = extent.slow
    for aggregation, precision in extent.slow_ways:
        case = RoundCase(extent.participants, slow_rows, slow_rank, slow_rounds, aggregation, precision)
        delay(rules, 0.0)
        work = (slow_rounds + 1) * run_of(case).mean_wall_round_s
        delay(rules, DELAY_MS, SLOW_KBIT)
        slow = run_of(case)
        bits = 8 * extent.participants * slow.bytes_per_participant_round
        yield {
            **asdict(case),
            "one_way_ms": DELAY_MS,
            "rate_kbit": SLOW_KBIT,
            "run_s": (slow_rounds + 1) * slow.mean_wall_round_s,
            "work_s": work,
            "transfer_s": slow_rounds * bits / (1000 * SLOW_KBIT),
            "round_trips_s": slow_rounds * 2 * ROUND_TRIP,
            "load": os.getloadavg()[0],
        }


def main() -> None:
    """Measure all cases, and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where the rows of delayed rounds go")
    parser.add_argument("--slow-line", type=Path, help="where the rows of whole runs go")
    parser.add_argument("--quick", action="store_true", help="with three sites and small matrices")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    extent = QUICK if given.quick else FULL
    if given.serve:
        serve(extent.participants, given.serve, extent.rounds)
        return
    if not (given.json or given.slow_line):
        parser.error("--json or --slow-line is needed")
    wanted = {path.resolve(): kind for kind, path in (("rounds", given.json), ("runs", given.slow_line)) if path}
    with tempfile.TemporaryDirectory(prefix="dcfpca-line-") as directory:
        rules = Path(directory) / "rules.json"
        with two_namespaces(rules):
            for path, kind in wanted.items():
                rounds = (row for shape in extent.cases for row in measure(rules, extent, *shape))
                rows = list(rounds if kind == "rounds" else measure_runs(rules, extent))
                path.write_text(json.dumps(rows, indent=2) + "\n")
                print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()

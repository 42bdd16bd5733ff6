"""A thousand participants: real mutual TLS, a few processes of asyncio clients, and the aggregator's memory.

    python -m benchmarks.many --participants 1000 --rounds 5 --rows 1000 --rank 10

Prints seconds per round, the memory of one idle connection, and the memory of a round beyond the connections with ten
participants and with all of them: the last two must be alike, because updates are added as they come.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from dcfpca.pki import open_authority
from tests.support.federation import Federation
from tests.support.light_site import LightSite, papers_of
from tests.support.processes import Process

COLUMNS = 2


@dataclass(frozen=True)
class Figures:
    """What one federation of this size cost the aggregator; memory in KiB."""

    participants: int
    rounds: int
    seconds_per_round: float
    idle_kib: int
    connected_kib: int
    peak_kib: int

    @property
    def per_connection_kib(self) -> float:
        return (self.connected_kib - self.idle_kib) / self.participants

    @property
    def beyond_connections_kib(self) -> int:
        return self.peak_kib - self.connected_kib


def clients(address: str, authority: str, names: list[str], rows: int) -> None:
    """One process full of participants."""
    asyncio.run(_clients(address, authority, names, rows))


async def _clients(address: str, authority: str, names: list[str], rows: int) -> None:
    threadpool_limits(1)
    ca, draw = open_authority(Path(authority)), np.random.default_rng(abs(hash(names[0])) % 2**32)
    sites = [LightSite(address, *papers_of(ca, name), draw.standard_normal((rows, COLUMNS))) for name in names]

    async def pause() -> None:
        await asyncio.sleep(float(draw.uniform(0.5, 2.0)))

    async def part(number: int, site: LightSite) -> str:
        # Daemons of a consortium do not all start in one moment.
        await asyncio.sleep(0.01 * number)
        return await site.take_part(pause)

    ended = await asyncio.gather(*(part(number, site) for number, site in enumerate(sites)))
    assert set(ended) == {"finished"}, set(ended)


def forget_peak(process: Process) -> None:
    """Let the process's peak of memory begin at what it has now."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def measure(root: Path, participants: int, rounds: int, rows: int, rank: int, processes: int) -> Figures:
    """Run one federation of this size in a fresh directory."""
    limits = {"max_participants": participants + 10}
    names = [f"p{index:05d}" for index in range(participants)]
    with Federation(root, limits=limits) as federation:
        aggregator = federation.start_aggregator("info")
        idle = aggregator.memory_kib()
        spawn = multiprocessing.get_context("spawn")
        arguments = (federation.address, str(federation.authority.directory))
        crowd = [spawn.Process(target=clients, args=(*arguments, names[k::processes], rows)) for k in range(processes)]
        for process in crowd:
            process.start()
        seen = 0
        while seen < participants:
            seen = sum(1 for one in federation.operator.participants() if one.state == "connected")
            assert all(process.is_alive() for process in crowd)
            time.sleep(0.5)
        connected = aggregator.memory_kib()
        forget_peak(aggregator)
        run_id = federation.propose(
            method="gradient",
            gradient={"local_iterations": 1},
            rows=rows,
            rank=rank,
            rounds=rounds,
            tolerance=0,
            aggregation="plain",
            enrol_seconds=120,
            round_seconds=300,
        )
        view = federation.finish(run_id, 1200)
        for process in crowd:
            process.join(60)
        assert len(view.enrolled) == participants
        seconds = [done.seconds for done in view.rounds]
        return Figures(participants, rounds, float(np.mean(seconds)), idle, connected, aggregator.peak_memory_kib())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--participants", type=int, default=1000)
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    figures = []
    for count in (given.few, given.participants):
        with tempfile.TemporaryDirectory() as root:
            few = min(count, given.processes)
            figures.append(measure(Path(root), count, given.rounds, given.rows, given.rank, few))
    if given.json:
        derived = [
            asdict(one)
            | {"per_connection_kib": one.per_connection_kib, "beyond_connections_kib": one.beyond_connections_kib}
            for one in figures
        ]
        print(json.dumps(derived, indent=2))
        return
    for one in figures:
        print(
            f"{one.participants:5d} participants: {one.seconds_per_round:.2f} s per round, "
            f"{one.per_connection_kib:.0f} KiB per connection, peak {one.peak_kib / 1024:.0f} MiB, "
            f"{one.beyond_connections_kib / 1024:.1f} MiB beyond the connections"
        )


if __name__ == "__main__":
    main()

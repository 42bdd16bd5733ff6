"""A thousand participants: real mutual TLS, a few processes of asyncio clients, and the aggregator's memory.

    python -m benchmarks.many_participants --participants 1000 --rounds 5 --rows 1000 --rank 10

Prints seconds per round, the memory of one idle connection, and the memory of a round beyond the connections with ten
participants and with all of them: the last two must be alike, because updates are added as they come.

A connection is a subscribed participant: mutual TLS, HTTP/2 and its open stream. It is measured twice: fresh, and after
each has carried one message of the size of an update to a call that turns it away, because gRPC keeps the buffers of a
connection once they have been used. Neither has to do with a run.
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
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event, Semaphore
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from dcfpca.pki.ca_directory import open_authority
from tests.support.services.federation import Federation
from tests.support.services.light_site import LightSite, papers_of
from tests.support.services.processes import Process

COLUMNS = 2


@dataclass(frozen=True)
class Figures:
    """What one federation of this size cost the aggregator; memory in KiB. `used` is `connected` after a transfer."""

    participants: int
    rounds: int
    seconds_per_round: float
    idle_kib: int
    connected_kib: int
    used_kib: int
    peak_kib: int

    @property
    def per_connection_kib(self) -> float:
        return (self.connected_kib - self.idle_kib) / self.participants

    @property
    def per_used_connection_kib(self) -> float:
        return (self.used_kib - self.idle_kib) / self.participants

    @property
    def beyond_connections_kib(self) -> int:
        """The peak without the connections."""
        return self.peak_kib - (self.used_kib - self.idle_kib)


@dataclass(frozen=True)
class Signals:
    """Between the measurement and its crowd: use the connections once, and they have been used."""

    use: Event
    used: Semaphore

    def use_all(self, participants: int) -> None:
        """Have every connection used, and wait for it."""
        self.use.set()
        for _ in range(participants):
            assert self.used.acquire(timeout=60)


def clients(address: str, authority: str, names: list[str], shape: tuple[int, int], signals: Signals) -> None:
    """One process full of participants."""
    asyncio.run(_clients(address, authority, names, shape, signals))


async def _clients(address: str, authority: str, names: list[str], shape: tuple[int, int], signals: Signals) -> None:
    threadpool_limits(1)
    ca, draw = open_authority(Path(authority)), np.random.default_rng(abs(hash(names[0])) % 2**32)
    rows, rank = shape
    sites = [LightSite(address, *papers_of(ca, name), draw.standard_normal((rows, COLUMNS))) for name in names]

    async def pause() -> None:
        await asyncio.sleep(float(draw.uniform(0.5, 2.0)))

    async def part(number: int, site: LightSite) -> str:
        # Daemons of a consortium do not all start in one moment.
        await asyncio.sleep(0.01 * number)
        return await site.take_part(pause)

    async def use_all() -> None:
        await asyncio.to_thread(signals.use.wait)
        for site in sites:
            await site.use_connection(8 * rows * rank)
            signals.used.release()

    parts = (part(number, site) for number, site in enumerate(sites))
    ended = (await asyncio.gather(use_all(), *parts))[1:]
    assert set(ended) == {"finished"}, set(ended)


def forget_peak(process: Process) -> None:
    """Let the process's peak of memory begin at what it has now."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


def await_connected(federation: Federation, participants: int) -> None:
    """Wait until so many participants have their streams open."""
    end = time.monotonic() + 300
    while sum(1 for one in federation.operator.participants() if one.state == "connected") < participants:
        assert time.monotonic() < end, "not everybody could connect"
        time.sleep(0.5)


def measure(root: Path, participants: int, rounds: int, rows: int, rank: int, processes: int) -> Figures:
    """Run one federation of this size in a fresh directory."""
    limits = {"max_participants": participants + 10}
    names = [f"p{index:05d}" for index in range(participants)]
    crowd: list[BaseProcess] = []
    with Federation(root, limits=limits, fresh=True) as federation:
        aggregator = federation.start_aggregator("info")
        idle = aggregator.memory_kib()
        spawn = multiprocessing.get_context("spawn")
        signals = Signals(spawn.Event(), spawn.Semaphore(0))
        for k in range(processes):
            place = (federation.address, str(federation.authority.directory))
            crowd.append(spawn.Process(target=clients, args=(*place, names[k::processes], (rows, rank), signals)))
            crowd[-1].start()
        await_connected(federation, participants)
        connected = aggregator.memory_kib()
        signals.use_all(participants)
        used = aggregator.memory_kib()
        forget_peak(aggregator)
        run_id = federation.propose(
            method="gradient",
            gradient={"local_iterations": 1},
            closing_rounds=False,
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
        peak = aggregator.peak_memory_kib()
        return Figures(participants, rounds, float(np.mean(seconds)), idle, connected, used, peak)


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
            | {name: getattr(one, name) for name in ("per_connection_kib", "per_used_connection_kib")}
            | {"beyond_connections_kib": one.beyond_connections_kib}
            for one in figures
        ]
        print(json.dumps(derived, indent=2))
        return
    for one in figures:
        print(
            f"{one.participants:5d} participants: {one.seconds_per_round:.2f} s per round, "
            f"{one.per_connection_kib:.0f} KiB per connection, {one.per_used_connection_kib:.0f} KiB once used, "
            f"peak {one.peak_kib / 1024:.0f} MiB, {one.beyond_connections_kib / 1024:.0f} MiB without the connections"
        )


if __name__ == "__main__":
    main()

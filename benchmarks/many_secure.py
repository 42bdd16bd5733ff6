"""Hundreds of members of one secure run: what its set-up and its rounds cost, by the number of members.

    python -m benchmarks.many_secure --participants 30 100 300 1000 --json benchmarks/results/many-secure.json

Real mutual TLS and a real aggregator; the members are asyncio clients in a few processes, which mask as daemons do but
neither check sums nor save anything. All of them share this machine, so that seconds are those of all members' work
together; CPU and bytes are those of one member. One member of each process verifies every certificate itself, and its
CPU is the one reported; the others share its verdicts, without which a thousand would take the machine an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import mean, median
from typing import Any

import grpc
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from threadpoolctl import threadpool_limits

from benchmarks.many_participants import await_connected, forget_peak
from benchmarks.rounds.round_cost import SetUpClock, cpu_seconds
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import open_authority
from dcfpca.pki.trust import verify_peer
from dcfpca.secagg.neighbours import degree_for
from dcfpca.v1 import admin_pb2 as pb
from tests.support.services.federation import Federation
from tests.support.services.light_secure_site import LightSecureSite, SetUpCost
from tests.support.services.light_site import papers_of

COLUMNS = 2
OVER = ("finished", "failed", "aborted", "paused")


@dataclass(frozen=True)
class Figures:
    """What one cohort cost: a member in its set-up, the aggregator in memory (KiB), all of them in seconds."""

    participants: int
    neighbours: int
    rows: int
    rank: int
    set_up_seconds: float
    set_up_sent: float
    set_up_received: float
    set_up_cpu_seconds: float
    seconds_per_round: float
    bytes_per_round: float
    aggregator_cpu_seconds: float
    idle_kib: int
    connected_kib: int
    peak_kib: int
    load: float


def members(address: str, authority: str, names: list[str], shape: tuple[int, int], costs: Any) -> None:
    """One process full of members; puts the cost of its first one, and the mean bytes of all, into the queue."""
    found = asyncio.run(_members(address, authority, names, shape))
    alone = found[0]
    costs.put((alone.cpu_seconds, mean(one.sent for one in found), mean(one.received for one in found)))


async def _members(address: str, authority: str, names: list[str], shape: tuple[int, int]) -> list[SetUpCost]:
    threadpool_limits(1)
    ca, draw, rows = open_authority(Path(authority)), np.random.default_rng(os.getpid()), shape[0]

    def verify(certificate: bytes, name: str) -> EllipticCurvePublicKey:
        identity, key = verify_peer(certificate, [ca.certificate], frozenset(), Role.PARTICIPANT, datetime.now(UTC))
        assert identity.name == name
        return key

    def with_verdicts(how: Callable[[bytes, str], EllipticCurvePublicKey]) -> list[LightSecureSite]:
        some = names[:1] if how is verify else names[1:]
        return [LightSecureSite(address, *papers_of(ca, name), data(), how) for name in some]

    def data() -> Any:
        return draw.standard_normal((rows, COLUMNS))

    sites = [*with_verdicts(verify), *with_verdicts(lru_cache(maxsize=None)(verify))]

    async def pause() -> None:
        await asyncio.sleep(float(draw.uniform(0.5, 2.0)))

    async def part(number: int, site: LightSecureSite) -> str:
        await asyncio.sleep(0.01 * number)
        return await site.take_part(pause)

    ended = await asyncio.gather(*(part(number, site) for number, site in enumerate(sites)))
    assert set(ended) == {"finished"}, set(ended)
    return [site.cost for site in sites]


def measure(root: Path, participants: int, rounds: int, rows: int, rank: int, processes: int) -> Figures:
    """Run one federation of this size in a fresh directory."""
    names = [f"p{index:05d}" for index in range(participants)]
    crowd: list[BaseProcess] = []
    limits = {"max_participants": participants + 10}
    with Federation(root, limits=limits, fresh=True) as federation:
        aggregator = federation.start_aggregator("info")
        idle, spawn = aggregator.memory_kib(), multiprocessing.get_context("spawn")
        costs = spawn.Queue()
        for k in range(processes):
            place = (federation.address, str(federation.authority.directory))
            crowd.append(spawn.Process(target=members, args=(*place, names[k::processes], (rows, rank), costs)))
            crowd[-1].start()
        await_connected(federation, participants)
        connected = aggregator.memory_kib()
        forget_peak(aggregator)
        spent, clock = cpu_seconds([aggregator.pid]), SetUpClock()
        view = watched(federation, proposed(federation, rounds, rows, rank), clock)
        spent = cpu_seconds([aggregator.pid]) - spent
        found = [costs.get(timeout=60) for _ in crowd]
        for process in crowd:
            process.join(60)
        assert view.status == "finished", view.reason
        assert len(view.enrolled) == participants
        worked = [one for one in view.rounds if one.round]
        return Figures(
            participants,
            degree_for(participants),
            rows,
            rank,
            clock.seconds,
            mean(one[1] for one in found),
            mean(one[2] for one in found),
            median(one[0] for one in found),
            median(one.seconds for one in worked),
            mean((one.bytes_sent + one.bytes_received) / participants for one in worked),
            spent,
            idle,
            connected,
            aggregator.peak_memory_kib(),
            os.getloadavg()[0],
        )


def proposed(federation: Federation, rounds: int, rows: int, rank: int) -> str:
    """A secure run that takes all its rounds."""
    return federation.propose(
        closing_rounds=False,
        rows=rows,
        rank=rank,
        rounds=rounds,
        tolerance=0,
        enrol_seconds=300,
        round_seconds=3600,
    )


def watched(federation: Federation, run_id: str, clock: SetUpClock) -> pb.RunView:
    """The run once it is over; the clock sees its phases."""
    while True:
        with suppress(grpc.RpcError):  # an aggregator that relays shares may take long to answer
            view = federation.operator.run(run_id)
            clock.see(view, time.monotonic())
            if view.status in OVER:
                return view
        time.sleep(0.2)


def main() -> None:
    """Measure each cohort, and write them all: what an earlier record has of other cohorts stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--participants", type=int, nargs="+", default=[30, 100, 300, 1000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kept = json.loads(given.json.read_text()) if given.json and given.json.exists() else []
    known = {one["participants"]: one for one in kept}
    for count in given.participants:
        with tempfile.TemporaryDirectory() as root:
            figures = measure(Path(root), count, given.rounds, given.rows, given.rank, min(count, given.processes))
        known[count] = asdict(figures)
        print(json.dumps(known[count]), flush=True)
        if given.json:
            given.json.write_text(json.dumps([known[size] for size in sorted(known)], indent=1) + "\n")


if __name__ == "__main__":
    main()

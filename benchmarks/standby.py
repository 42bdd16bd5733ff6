"""Two aggregators on one PostgreSQL: how long a run stands still after each fault, and whether health ever lies.

    python -m benchmarks.standby --repeats 5 --json benchmarks/results/standby.json

Real daemons, three sites, a secure run. The clock runs from the fault until every site has computed its step of the
second round after the one it was in: at least one round was then begun, summed and committed after the fault. All the
while both aggregators are asked for their health; a poll in which both say that they serve is a lie.
"""

from __future__ import annotations

import argparse
import json
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aggregator.config import Config
from aggregator.rpc.health_client import probe
from dcfpca.errors import DcfpcaError
from tests.support.services.postgresql import Server, postgresql_server
from tests.support.services.processes import Process
from tests.support.services.standby_pair import NAMES, StandbyPair
from tests.support.surroundings.proxy import Proxy

SITES = ("alpha", "beta", "gamma")
SPEC: dict[str, Any] = {"rank": 2, "rounds": 1000, "tolerance": 0.0, "participants": SITES, "closing_rounds": False}
POLL_SECONDS = 0.2
LONGEST_SECONDS = 60.0


@dataclass
class Scene:
    """The pair, its sites and its database; the proxies of each aggregator lead it to the database, and sites to it."""

    pair: StandbyPair
    database: Server
    to_database: dict[str, Proxy]
    to_sites: dict[str, Proxy]
    serving: str = NAMES[0]

    @property
    def process(self) -> Process:
        """The aggregator that serves when the fault comes."""
        return self.pair.processes[self.serving]


def killed(scene: Scene) -> None:
    """Kill -9."""
    scene.process.kill()


def terminated(scene: Scene) -> None:
    """SIGTERM: it gives the lease back."""
    scene.process.signal(signal.SIGTERM)


def stopped(seconds: float) -> Callable[[Scene], None]:
    """SIGSTOP, and SIGCONT after so many seconds."""

    def fault(scene: Scene) -> None:
        process = scene.process
        process.signal(signal.SIGSTOP)
        threading.Timer(seconds, process.signal, [signal.SIGCONT]).start()

    return fault


def frozen_database(scene: Scene) -> None:
    """Every process of PostgreSQL stopped for three seconds."""
    scene.database.signal(signal.SIGSTOP)
    threading.Timer(3.0, scene.database.signal, [signal.SIGCONT]).start()


def restarted_database(scene: Scene) -> None:
    """PostgreSQL restarted at once, as after a crash."""
    scene.database.restart()


def cut_from_database(scene: Scene) -> None:
    """What goes between the serving aggregator and the database disappears."""
    scene.to_database[scene.serving].swallow()


def cut_from_all(scene: Scene) -> None:
    """What goes to and from the machine of the serving aggregator disappears."""
    cut_from_database(scene)
    scene.to_sites[scene.serving].swallow()


FAULTS: dict[str, Callable[[Scene], None]] = {
    "kill -9": killed,
    "SIGTERM": terminated,
    "stopped 3 s": stopped(3.0),
    "stopped 15 s": stopped(15.0),
    "PostgreSQL restarted at once": restarted_database,
    "PostgreSQL frozen 3 s": frozen_database,
    "cut off from the database": cut_from_database,
    "machine cut off": cut_from_all,
}


@dataclass
class HealthWatch:
    """Asks both aggregators at the same time, again and again, until closed."""

    configs: dict[str, Config]
    polls: int = 0
    lies: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            with ThreadPoolExecutor(len(self.configs)) as each:
                serving = sum(each.map(serves, self.configs.values()))
            self.polls, self.lies = self.polls + 1, self.lies + (serving > 1)

    def close(self) -> None:
        """Stop asking."""
        self._over.set()
        self._thread.join()


def serves(config: Config) -> bool:
    """Whether the aggregator with this configuration says within a second that it serves."""
    try:
        return "is serving" in probe(config, 1.0, standby_ok=True)
    except DcfpcaError:
        return False


@contextmanager
def scene(root: Path) -> Iterator[Scene]:
    """Everything started and connected, the first aggregator serving."""
    draw = np.random.default_rng(5)
    with postgresql_server() as database:
        url = database.new_database()
        to_database = {name: Proxy(f"127.0.0.1:{database.port}") for name in NAMES}
        urls = [database.by_way_of(to_database[name].address, url) for name in NAMES]
        with StandbyPair(root, urls[1], urls[0]) as pair:
            to_sites = dict(zip(NAMES, map(Proxy, pair.address.split(",")), strict=True))
            for name in NAMES:
                pair.start(name)
            for name in SITES:
                pair.add_site(name, draw.standard_normal((30, 40)), ",".join(one.address for one in to_sites.values()))
            pair.start_sites(SITES)
            yield Scene(pair, database, to_database, to_sites)
            for proxy in (*to_database.values(), *to_sites.values()):
                proxy.close()


def step_of(process: Process, run_id: str) -> int:
    """The last round of the run of which a site has computed its step."""
    said = (one for one in reversed(process.events()) if (one["action"], one.get("run")) == ("step_computed", run_id))
    return int(next(said, {"round": -1})["round"])


def measure(here: Scene, fault: Callable[[Scene], None], wait: float) -> dict[str, Any]:
    """One fault during a run of its own; afterwards everything is as it was before, but for who serves."""
    pair, sites = here.pair, [here.pair.processes[name] for name in SITES]
    for process in pair.processes.values():
        process.lines.clear()
    run_id = pair.propose(**SPEC)
    await_steps(sites, run_id, 5, time.monotonic())
    time.sleep(wait)  # so that faults come at another moment of a round each time
    with closing(HealthWatch({name: pair.config(name) for name in NAMES})) as health:
        began = time.monotonic()
        fault(here)
        seconds = await_steps(sites, run_id, max(step_of(site, run_id) for site in sites) + 2, began)
        mend(here)
    pair.operator.abort(run_id, "measured")
    return {"seconds": round(seconds, 2), "polls": health.polls, "lies": health.lies, "serves": here.serving}


def await_steps(sites: list[Process], run_id: str, round: int, began: float) -> float:
    """Wait until each site has computed its step of this round; seconds since it began."""
    while min(step_of(site, run_id) for site in sites) < round:
        if time.monotonic() > began + LONGEST_SECONDS:
            raise SystemExit(f"no round {round} within {LONGEST_SECONDS:g} s")
        time.sleep(0.02)
    return time.monotonic() - began


def mend(here: Scene) -> None:
    """What a supervisor does: start again whoever ended; and the network passes everything again."""
    end = time.monotonic() + LONGEST_SECONDS
    while True:
        for proxy in (*here.to_database.values(), *here.to_sites.values()):
            if proxy.swallows:
                proxy.cut()
                proxy.heal()
        for name in NAMES:
            if not here.pair.processes[name].is_alive:
                here.pair.start(name)
        told = {name: said(here.pair.config(name)) for name in NAMES}
        if sorted(told.values()) == ["serving", "standby"]:
            here.serving = next(name for name, word in told.items() if word == "serving")
            return
        if time.monotonic() > end:
            raise SystemExit(f"the pair is not whole again: {told}")
        time.sleep(POLL_SECONDS)


def said(config: Config) -> str:
    """One word for what an aggregator answers."""
    try:
        return "serving" if "is serving" in probe(config, 1.0, standby_ok=True) else "standby"
    except DcfpcaError:
        return "silent"


def main() -> None:
    """Measure each fault so many times, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--faults", nargs="*", default=list(FAULTS), choices=list(FAULTS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in given.faults}
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="dcfpca-bench-") as directory, scene(Path(directory)) as here:
        for _ in range(given.repeats):
            for name in given.faults:
                found[name].append(measure(here, FAULTS[name], draw.uniform(0.0, 1.0)))
                print(name, json.dumps(found[name][-1]), flush=True)
    for name, each in found.items():
        print(f"{name}: at most {max(one['seconds'] for one in each)} s, {sum(one['lies'] for one in each)} lies")
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

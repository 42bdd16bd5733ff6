"""What starting and idling cost: CPU of the commands that people type and probes call, and of services at rest.

    python -m benchmarks.start_up --json benchmarks/results/start-up.json

Commands are the installed ones, in processes of their own, against a real federation over mutual TLS; a figure is the
best of the repeats, since whatever else the machine does only adds to it. A service is ready when its ready file is
there (the aggregator) or when the operator sees it connected (a participant), measured from the start of its process.
Bytecode is kept between the repeats, as where the package is installed.
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

import numpy as np

from benchmarks.local_federation import local_federation, pid_of, planned
from benchmarks.rounds.round_cost import cpu_seconds
from dcfpca.operator.client import Operator
from dcfpca.scaffold.background import signals_exit, until
from dcfpca.scaffold.local_consortium import Consortium

SITES = ("a", "b", "c")
SHAPE = (100, 60)
Row = dict[str, object]


def commands(consortium: Consortium) -> dict[str, list[str]]:
    """By the name that a person would write, with the arguments that this federation needs."""
    aggregator = consortium.aggregator.directory / "aggregator.toml"
    site = consortium.sites[SITES[0]].directory / "participant.toml"
    return {
        "dcfpca --help": [],
        "dcfpca-participant --help": [],
        "dcfpca-aggregator --help": [],
        "dcfpca-aggregator health": ["--config", str(aggregator)],
        "dcfpca-participant ledger": ["--config", str(site)],
        "dcfpca run list": ["--config", str(consortium.operator_config)],
    }


def command_cpu(words: list[str]) -> float:
    """User and system CPU seconds of one call, which must succeed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    script, *arguments = words
    subprocess.run([Path(sys.executable).with_name(script), *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def aggregator_start(consortium: Consortium) -> Row:
    """Kill the aggregator and start it again, with its store as it is."""
    consortium.aggregator.kill()
    began = time.monotonic()
    consortium.start_aggregator()
    took = time.monotonic() - began
    return {"what": "aggregator", "ready_s": took, "cpu_s": cpu_seconds([pid_of(consortium)])}


def site_start(consortium: Consortium, operator: Operator, name: str) -> Row:
    """Kill a daemon, wait until it is missed, and start it again."""
    site = consortium.sites[name]
    site.kill()
    until(lambda: not operator.are_connected([name]), [consortium.aggregator], "the end of the connection")
    began = time.monotonic()
    consortium.start_site(name)
    until(lambda: operator.are_connected([name]), [site], "the site's connection")
    took = time.monotonic() - began
    return {"what": "participant", "ready_s": took, "cpu_s": cpu_seconds([pid_of(consortium, name)])}


def idle(consortium: Consortium, seconds: float) -> list[Row]:
    """The share of one core that each service takes while nothing happens."""
    pids = {"aggregator": [pid_of(consortium)], "participant": [pid_of(consortium, name) for name in SITES]}
    before = {what: cpu_seconds(found) for what, found in pids.items()}
    time.sleep(seconds)
    return [
        {"what": what, "share": (cpu_seconds(found) - before[what]) / seconds / len(found), "seconds": seconds}
        for what, found in pids.items()
    ]


def measure(directory: Path, repeats: int, idle_seconds: float) -> dict[str, object]:
    """Everything, in one federation."""
    data = dict.fromkeys(SITES, np.random.default_rng(0).standard_normal(SHAPE))
    with local_federation(directory, planned(directory, list(SITES), {}), data) as (consortium, operator):
        starts = [site_start(consortium, operator, SITES[k % len(SITES)]) for k in range(repeats)]
        cpu = {
            name: min(command_cpu([*name.split(), *arguments]) for _ in range(repeats))
            for name, arguments in commands(consortium).items()
        }
        resting = idle(consortium, idle_seconds)
        starts += [aggregator_start(consortium) for _ in range(repeats)]
    return {"repeats": repeats, "load": os.getloadavg()[0], "command_cpu_s": cpu, "starts": starts, "idle": resting}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="dcfpca-bench-") as directory, signals_exit():
        found = json.dumps(measure(Path(directory), given.repeats, given.idle_seconds), indent=1)
    print(found)
    if given.json:
        given.json.write_text(found + "\n")


if __name__ == "__main__":
    main()

"""A small job as a person runs it: four tables of 260 samples and 20 features, `scaling = "robust"`, by the commands.

    python -m benchmarks.small_job --json benchmarks/results/small-job.json

`dcfpca init local`, `up` and `run start` as processes, aggregator and sites over mutual TLS; the clock runs from the
start of `dcfpca run start` until every site has written its results. `--delay` puts a relay between sites and
aggregator that holds every byte back for so many milliseconds, one way. What each stage took is what `dcfpca run show
--timing` says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from dcfpca.scaffold.background import signals_exit
from dcfpca.scaffold.local_consortium import free_ports

SITES = ("a", "b", "c", "d")
SAMPLES, FEATURES, RANK = 260, 20, 3
SETTINGS = ("--set", 'scaling="robust"')


def tables(seed: int = 0) -> dict[str, str]:
    """A table of each site as CSV: features of unlike units that share three directions, noise, 1 % gross errors."""
    rng = np.random.default_rng(seed)
    mix, level, unit = (
        rng.normal(size=(RANK, FEATURES)),
        rng.normal(size=FEATURES),
        10.0 ** rng.integers(-2, 4, FEATURES),
    )
    names = ["id", *(f"feature {k}" for k in range(FEATURES))]
    found = {}
    for site in SITES:
        values = rng.normal(size=(SAMPLES, RANK)) @ mix + 0.5 * rng.normal(size=(SAMPLES, FEATURES)) + 5.0 * level
        values += np.where(rng.random(values.shape) < 0.01, 8.0 * rng.choice([-1.0, 1.0], values.shape), 0.0)
        rows = [[f"{site}{k}", *(f"{value:.6g}" for value in row)] for k, row in enumerate(values * unit)]
        found[site] = "\n".join(",".join(row) for row in [names, *rows]) + "\n"
    return found


def command(*words: str) -> str:
    """What an installed command prints; it must succeed."""
    script, *arguments = words
    done = subprocess.run(
        [Path(sys.executable).with_name(script), *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def job(home: Path) -> dict[str, Any]:
    """One run, from the command that proposes it to the last site's results."""
    config, began = str(home / "operator" / "operator.toml"), time.monotonic()
    run = command("dcfpca", "run", "start", *SETTINGS, "--config", config).split()[0]
    proposed = time.monotonic() - began
    awaited = [home / "sites" / site / "results" / run / "manifest.json" for site in SITES]
    while not all(path.exists() for path in awaited):
        time.sleep(0.01)
    seconds = time.monotonic() - began
    shown = json.loads(command("dcfpca", "run", "show", run, "--timing", "--json", "--config", config))
    assert shown["status"] == "finished", shown["reason"]
    return {"seconds": seconds, "proposed_s": proposed, "rounds": len(shown["rounds"]), "stages": shown["timing"]}


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[int]:
    """A port that leads to another on loopback, every byte of either direction held back by so many seconds."""
    loop = asyncio.new_event_loop()
    relay = loop.run_until_complete(asyncio.start_server(lambda *ends: _join(port, seconds, *ends), "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield relay.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _join(port: int, seconds: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", port)
    await asyncio.gather(_pump(reader, back, seconds), _pump(there, writer, seconds))


async def _pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    with suppress(ConnectionError):
        while data := await source.read(1 << 16):
            loop.call_later(seconds, target.write, data)
    loop.call_later(seconds, target.close)


def measure(home: Path, repeats: int, delay_ms: float) -> dict[str, Any]:
    """A consortium of its own, and so many runs in it, the first of which finds everything cold."""
    data = {site: home.with_name(f"{site}.csv") for site in SITES}
    for site, text in tables().items():
        data[site].write_text(text)
    port = free_ports(1)[0]
    words = ["init", "local", str(home), *(f"{site}={path}" for site, path in data.items())]
    command("dcfpca", *words, "--id-column", "id", "--port", str(port))
    with delayed(port, delay_ms / 1000.0) as through:
        if delay_ms:
            for site in SITES:
                file = home / "sites" / site / "participant.toml"
                file.write_text(file.read_text().replace(f":{port}", f":{through}"))
        try:
            command("dcfpca", "up", str(home))
            runs = [job(home) for _ in range(repeats)]
        finally:
            command("dcfpca", "down", str(home))
    return {"delay_ms": delay_ms, "seconds": median(one["seconds"] for one in runs), "runs": runs}


def main() -> None:
    """Measure without delay, and with each that is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--delay", type=float, nargs="*", default=[0.0, 50.0], help="milliseconds, one way")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = []
    with signals_exit():
        for delay_ms in given.delay:
            with tempfile.TemporaryDirectory(prefix="dcfpca-bench-") as directory:
                found.append(measure(Path(directory) / "home", given.repeats, delay_ms) | {"load": os.getloadavg()[0]})
    text = json.dumps(found, indent=1)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()

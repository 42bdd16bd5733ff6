"""Seconds and bytes of a round against Flower, on the same exchange in the same run.

    python -m benchmarks.rounds.flower_comparison --flower-python PATH [--participants 10 --rounds 5] --json FILE

Both send one rows × rank float64 tensor to every site and get one back, over TLS, in processes of their own; the local
step does nothing. Ours is `benchmarks.rounds`, plain and secure, with mutual TLS. Flower is a SuperLink and one
SuperNode per site with TLS (`pip install flwr`; PATH is the Python that has it). It runs twice: with its defaults,
and with the interval at which it looks for tasks set to the least it allows. Flower's bytes are those on the wire; ours
are those of the messages, without TLS.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.rounds.flower_run import Exchange, flower_rounds

SETTINGS: dict[str, dict[str, str]] = {
    "as it comes": {},
    "tasks looked for every 0.01 s": {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.01"},
}
OUR_ROUNDS = 20
Row = dict[str, object]


def ours(exchange: Exchange, aggregation: str) -> Row:
    shape = ["--participants", exchange.participants, "--rows", exchange.rows, "--rank", exchange.rank]
    words = [sys.executable, "-m", "benchmarks.rounds", *shape]
    words += ["--rounds", OUR_ROUNDS, "--aggregation", aggregation, "--json"]
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True, timeout=200)
    return {"system": f"dcfpca, {aggregation}", **json.loads(done.stdout)}


def flower(python: Path, exchange: Exchange, setting: str) -> Row:
    version = "import importlib.metadata; print(importlib.metadata.version('flwr'))"
    found = subprocess.run([python, "-c", version], check=True, stdout=subprocess.PIPE, text=True)
    seconds, moved = flower_rounds(python, exchange, SETTINGS[setting])
    row: Row = {"system": f"Flower {found.stdout.strip()}, {setting}", "participants": exchange.participants}
    row |= {"rows": exchange.rows, "rank": exchange.rank, "rounds": exchange.rounds, "seconds": seconds}
    row |= {"median_round_s": median(seconds), "min_round_s": min(seconds)}
    return row | {"bytes_per_participant_round": moved}


def has_flower(python: Path | None) -> bool:
    if python is None or not python.exists():
        return False
    return subprocess.run([python, "-c", "import flwr"], check=False, stderr=subprocess.DEVNULL).returncode == 0


def rows(wanted: argparse.Namespace) -> Iterator[Row]:
    exchange = Exchange(wanted.participants, wanted.rows, wanted.rank, wanted.rounds)
    for aggregation in ("plain", "secure"):
        yield ours(exchange, aggregation)
    if not has_flower(wanted.flower_python):
        print("Flower is not installed and was left out: pip install flwr, then --flower-python", file=sys.stderr)
        return
    for setting in wanted.settings:
        yield flower(wanted.flower_python, exchange, setting)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--participants", type=int, default=10)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--rank", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5, help="of Flower")
    parser.add_argument("--flower-python", type=Path, default=Path(sys.executable))
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    found: list[Row] = []
    for row in rows(wanted):
        found.append({**row, "load": os.getloadavg()[0]})
        print(json.dumps(found[-1]), flush=True)
        if wanted.json:
            wanted.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

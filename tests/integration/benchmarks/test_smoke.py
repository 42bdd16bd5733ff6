"""Every command that docs/results.md and its appendix name runs on a clean checkout, in its smallest form."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.slow
SMALL = {
    "causes": "--data {data} --json {out}/causes.json",
    "cell_peers": "--data {data} --ways decimal --json {out}/peers.json",
    "cells": "--data {data} --only null,errors --json {out}/cells.json",
    "cost_growth": "--shrink 25 --json {out}/growth.json",
    "many_secure": "--participants 5 --rounds 1 --rows 20 --rank 2 --json {out}/many-secure.json",
    "many_participants": "--participants 8 --few 2 --rounds 2 --rows 20 --rank 2 --processes 1 --json",
    "many_runs": "--runs 2 --json {out}/runs.json",
    "out_of_core": "--gib 0.002 --memory-limit 512MiB --rows 200 --rank 3 --rounds 2 --threads 1 --finish --dir {out}",
    "paper": "--quick --first 1 --out {out}",
    "paper --figure": "--figure local-iterations --quick --out {out}",
    "paper.costs exchange": "exchange --sizes 3 --out {out}/costs.json",
    "paper.costs sites": "sites --sizes 200 --out {out}/costs.json",
    "peers.record": "--sizes 60 --repeats 1 --limit 5 --solvers subspace IRCUR --json {out}/peers.json",
    "poisoning": "--attacks garbage --cohorts 1of4 --seeds 0 --honest 0 --json {out}/poisoning.json",
    "private_subspace cells": "cells --rows 30 --rank 2 --columns 400 --epsilon 8 --gross no --json {out}/private.json",
    "private_subspace rounds": "rounds --rows 30 --rank 2 --columns 400 --json {out}/private.json",
    "rank_choice": "--data {data} --keys 2 --json {out}/ranks.json",
    "real_data": "--data {data} --json {out}/real.json --figures {out}",
    "real_tables": "--data {data} --sets heart --seeds 1 --json {out}/real.json",
    "rounds": "--participants 3 --rows 20 --rank 2 --rounds 3 --aggregation plain --raw --json",
    "rounds.delayed": "--quick --json {out}/delayed.json",
    "rounds.delayed --slow-line": "--quick --slow-line {out}/slow.json",
    "rounds.secure": "--only 10 --turns 1 --rounds 2 --json {out}/secure.json",
    "samples": "--data {data} --only none,shift,drift --json {out}/samples.json",
    "site_gain": "--data {data} --sets heart",  # with --json it also draws docs/figures/site-gain
    "small_job": "--repeats 1 --delay 0 --json {out}/job.json",
    "solver cells": "cells --first 1",
    "solver closing": "closing --first 1",
    "solver easy": "easy --sizes 60",
    "solver identifiable": "identifiable --first 1",
    "solver kinds": "kinds --first 1",
    "solver known-failures": "known-failures --first 1",
    "solver roofline": "roofline --first 2",
    "solver split": "split --first 1 --out {out}/split.jsonl",
    "solver step": "step --first 1",
    "solver values": "values --sizes 60",
    "start_up": "--repeats 1 --idle-seconds 1 --json {out}/start.json",
    "table_peers": "--data {data} --sets heart --json {out}/peers.json",
    "thread_speedup": "--repeats 1 --size 100 --gib 0.002 --json {out}/threads.json",
    "wide": "--rows 200 --columns --rank 2 --json {out}/wide.json",
}
NEEDS_NAMESPACES = "rounds.delayed"  # two network namespaces, and a TAP device in each


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made-up data in the places where benchmarks look for real data, and the tools beside it that judge them."""
    folder = tmp_path_factory.mktemp("benchmarks") / "data"
    for name in ("tables", "highway", "asd"):
        (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(90, 6)) + 10.0
    np.savez(folder / "tables" / "tiny.npz", X=X.round(2), site=np.arange(90) % 3)
    truth = np.where(rng.random((6, 8, 60)) < 0.03, 255, 0)
    still = rng.integers(40, 90, (6, 8, 1)) + rng.integers(0, 5, truth.shape)
    np.savez(folder / "highway" / "highway_60x80.npz", frames=np.where(truth == 255, 250, still), gt=truth)
    odd = np.arange(40) % 9 == 0
    for number in range(1, 13):
        np.savez(folder / "asd" / f"omi-{number}.npz", X=0.2 * rng.random((6, 40)) + 0.5 * odd, y=odd)
    shutil.copytree(ROOT / "tests" / "support" / "benchmark_tools", folder.parent / "tools")
    return folder


def form(words: str) -> str:
    """A command by what it runs: its module with a subcommand, or with the option that chooses something else."""
    module, *rest = words.split()
    chosen = [word for word in rest[:1] if not word.startswith("-")]
    chosen += [word for word in rest if word in {"--figure", "--slow-line"}]
    return " ".join([module, *chosen])


def named() -> set[str]:
    pages = (ROOT / "docs" / name for name in ("results.md", "measurements.md"))
    commands = [
        line for page in pages for line in re.findall(r"(?m)^    python -m benchmarks\.(.+)$", page.read_text())
    ]
    return {form(command) for command in commands}


def run(module: str, arguments: list[str]) -> str:
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_every_named_command_is_tried() -> None:
    assert len(named()) > 30
    assert named() <= SMALL.keys()


@pytest.mark.parametrize("command", SMALL)
def test_a_command_runs_in_its_smallest_form(command: str, data: Path, tmp_path: Path) -> None:
    module = command.split(maxsplit=1)[0]
    if module == NEEDS_NAMESPACES and (os.getuid() or not os.access("/dev/net/tun", os.W_OK) or not shutil.which("ip")):
        pytest.skip("network namespaces need root, /dev/net/tun and iproute2")
    said = run(module, SMALL[command].format(out=tmp_path, data=data).split())
    for record in tmp_path.glob("*.json"):
        assert json.loads(record.read_text())
    assert said or list(tmp_path.iterdir())

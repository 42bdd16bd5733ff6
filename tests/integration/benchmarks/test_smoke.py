"""Every benchmark that docs/results.md and its appendix name runs on a clean checkout, in its smallest form."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.slow
SMALL = {
    "many_participants": "--participants 8 --few 2 --rounds 2 --rows 20 --rank 2 --processes 1 --json",
    "out_of_core": "--gib 0.002 --memory-limit 512MiB --rows 200 --rank 3 --rounds 2 --threads 1 --finish --dir {out}",
    "paper": "--figure local-iterations --quick --out {out}",
    "peers.record": "--sizes 60 --repeats 1 --limit 5 --solvers subspace IRCUR --json {out}/peers.json",
    "poisoning": "--attacks garbage --cohorts 1of4 --seeds 0 --honest 0 --json {out}/poisoning.json",
    "private_subspace": "cells --rows 30 --rank 2 --columns 400 --epsilon 8 --gross no --json {out}/private.json",
    "rounds": "--participants 3 --rows 20 --rank 2 --rounds 3 --aggregation plain --raw --json",
    "solver": "split --out {out}/split.jsonl",
}
# What needs data that is not part of the project, another machine's privileges, or minutes at its smallest: that it
# starts and knows its options is all that can be said here.
STARTS_ONLY = {
    "causes", "cell_peers", "cells", "samples", "real_data", "real_tables", "site_gain", "table_peers",
    "rounds.delayed", "rounds.secure", "paper.costs", "cost_growth", "thread_speedup", "small_job", "start_up",
}  # fmt: skip


def named() -> set[str]:
    pages = (ROOT / "docs" / name for name in ("results.md", "measurements.md"))
    return {module for page in pages for module in re.findall(r"python -m benchmarks\.([\w.]+)", page.read_text())}


def run(module: str, arguments: list[str]) -> str:
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_every_named_benchmark_is_tried() -> None:
    assert named() <= SMALL.keys() | STARTS_ONLY


@pytest.mark.parametrize("module", SMALL)
def test_a_benchmark_runs_in_its_smallest_form(module: str, tmp_path: Path) -> None:
    said = run(module, SMALL[module].format(out=tmp_path).split())
    for record in tmp_path.glob("*.json"):
        assert json.loads(record.read_text())
    assert said or list(tmp_path.iterdir())


@pytest.mark.parametrize("module", sorted(STARTS_ONLY))
def test_a_benchmark_that_needs_more_starts(module: str) -> None:
    assert "usage" in run(module, ["--help"]).lower()

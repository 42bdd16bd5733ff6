"""Benchmarks start as the commands that docs/results.md names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT


@pytest.mark.parametrize("module", ["many_participants", "paper", "peers", "rounds", "solve"])
def test_a_benchmark_with_real_services_starts_in_a_process_of_its_own(module: str) -> None:
    """Which requires TLS 1.3 before it loads gRPC; pytest's own process has done so already."""
    command = [sys.executable, "-m", f"benchmarks.{module}", "--help"]
    clean = {"PATH": ""}
    done = subprocess.run(command, cwd=ROOT, env=clean, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr

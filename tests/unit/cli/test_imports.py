"""What is typed often, and what probes call all day, does not load the numerics."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "scipy", "numba", "pandas", "dcfpca.spec", "dcfpca.rpca.method")
SAY = """
import sys, importlib
sys.argv = sys.argv[1:]
try:
    importlib.import_module(sys.argv[0]).main()
except SystemExit:
    pass
sys.stderr.write("\\nloaded: " + " ".join(sys.modules))
"""


def loaded(*words: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", SAY, *words], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.rpartition("loaded: ")[2].split())


@pytest.mark.parametrize(
    "words",
    [
        ("dcfpca.cli.main", "--help"),
        ("dcfpca.cli.main", "run", "list", "--aggregator", "127.0.0.1:1"),
        ("dcfpca.cli.main", "run", "audit", "x", "--help"),
        ("dcfpca.cli.main", "certs", "list", "--dir", "nowhere"),
        ("aggregator.main", "health", "--config", "nowhere"),
    ],
    ids=lambda words: "-".join(words[:3]),
)
def test_light_commands_do_not_load_the_numerics(words: tuple[str, ...]) -> None:
    found = loaded(*words)
    assert "dcfpca.errors" in found
    assert found.isdisjoint(HEAVY)


def test_a_late_command_is_loaded_when_it_is_called_and_speaks_for_itself() -> None:
    words = [sys.executable, "-m", "dcfpca.cli.main", "bench", "solve", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "Usage: dcfpca bench solve" in done.stdout.replace("python -m dcfpca.cli.main", "dcfpca")
    assert "--rank" in done.stdout

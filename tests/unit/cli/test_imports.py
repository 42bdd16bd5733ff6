"""What is typed often, and what probes call all day, does not load the numerics."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dcfpca.cli.main import COMMANDS, command_tree
from participant.state.database import DATABASE, open_database

NUMERICS = {"numpy", "scipy", "numba", "pandas", "dcfpca.spec", "dcfpca.rpca.method"}
NEEDLESS_FOR_HELP = NUMERICS | {"pydantic", "grpc", "cryptography", "google.protobuf", "sqlite3.dbapi2", "asyncio"}
NEEDLESS_FOR_A_PROBE = NUMERICS | {"rich", "prometheus_client"}
SLOW_PARTS = {"scipy.linalg", "scipy.sparse", "scipy.special", "numba", "sklearn", "pyarrow", "dask", "rich"}
SAY = """
import sys, importlib
sys.argv = sys.argv[1:]
try:
    importlib.import_module(sys.argv[0]).main()
except SystemExit:
    pass
sys.stderr.write("\\nloaded: " + " ".join(sys.modules))
"""


CONFIGURATION = """
[aggregator]
address = "127.0.0.1:1"
[identity]
ca = "ca.pem"
cert = "site.pem"
key = "site.key"
[data]
path = "matrix.npy"
[state]
dir = "state"
[results]
dir = "results"
"""


def loaded(*words: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", SAY, *words], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stderr.rpartition("loaded: ")[2].split())


@pytest.mark.parametrize("main", ["dcfpca.cli.main", "aggregator.main", "participant.main"])
def test_help_loads_the_command_line_alone(main: str) -> None:
    found = loaded(main, "--help")
    assert "dcfpca.errors" in found
    assert found.isdisjoint(NEEDLESS_FOR_HELP - ({"sqlite3.dbapi2"} if main == "participant.main" else set()))


@pytest.mark.parametrize(
    "words",
    [
        ("dcfpca.cli.main", "run", "list", "--aggregator", "127.0.0.1:1"),
        ("dcfpca.cli.main", "run", "audit", "x", "--help"),
        ("dcfpca.cli.main", "certs", "list", "--dir", "nowhere"),
    ],
    ids=lambda words: "-".join(words[:3]),
)
def test_light_commands_do_not_load_the_numerics(words: tuple[str, ...]) -> None:
    found = loaded(*words)
    assert "dcfpca.errors" in found
    assert found.isdisjoint(NUMERICS)


def test_the_ledger_is_shown_without_the_numerics(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    open_database(tmp_path / "state" / DATABASE).close()
    config = tmp_path / "participant.toml"
    config.write_text(CONFIGURATION)
    found = loaded("participant.main", "ledger", "--verify", "--run", "2026", "--config", str(config))
    assert "participant.state.ledger" in found
    assert found.isdisjoint(NUMERICS | {"grpc", "cryptography"})


def test_a_health_probe_loads_neither_numerics_nor_terminal() -> None:
    code = "import sys, aggregator.main, aggregator.config, aggregator.rpc.health_client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "aggregator.rpc.health_client" in done.stdout.split()
    assert NEEDLESS_FOR_A_PROBE.isdisjoint(done.stdout.split())


@pytest.mark.parametrize("service", ["aggregator.service.serve", "participant.daemon", "dcfpca"])
def test_services_start_without_the_slow_parts_of_the_numerics(service: str) -> None:
    code = f"import sys, {service}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert service in done.stdout.split()
    assert SLOW_PARTS.isdisjoint(done.stdout.split())


def test_the_list_of_commands_says_what_each_says_of_itself() -> None:
    for name, command in command_tree().commands.items():
        assert COMMANDS[name].help == (command.help or "").partition("\n\n")[0].replace("\n", " "), name


def test_a_late_command_is_loaded_when_it_is_called_and_speaks_for_itself() -> None:
    words = [sys.executable, "-m", "dcfpca.cli.main", "run", "start", "--help"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert "Usage: dcfpca run start" in done.stdout.replace("python -m dcfpca.cli.main", "dcfpca")
    assert "--rank" in done.stdout

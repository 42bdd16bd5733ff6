"""A Flower federation on this machine: a SuperLink, SuperNodes, TLS, and the app in `benchmarks/flower`."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.rounds.traffic_counter import TrafficCounter
from dcfpca.identity import Role
from dcfpca.pki.ca_directory import create_authority
from dcfpca.pki.credential_files import issue_credentials

APP = Path(__file__).parent / "flower"
LINK_PORT, NODE_PORT = 18700, 18710
PATIENCE = 220.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """What is exchanged, and how often."""

    participants: int
    rows: int
    rank: int
    rounds: int


@dataclass(slots=True)
class _Processes:
    """Started by name in one directory, with a log each."""

    home: Path
    environment: Mapping[str, str]
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, name: str, words: Sequence[object]) -> None:
        with (self.home / f"{name}.log").open("wb") as log:
            made = subprocess.Popen(
                [str(word) for word in words], stdout=log, stderr=subprocess.STDOUT, env=dict(self.environment)
            )
        self.started.append(made)

    def until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text()[-500:] for path in self.home.glob("*.log"))
                raise TimeoutError(f"{what} did not happen within {PATIENCE:g} s:\n{logs}")
            time.sleep(0.1)

    def stop(self) -> None:
        for made in reversed(self.started):
            made.terminate()
        for made in self.started:
            try:
                made.wait(10)
            except subprocess.TimeoutExpired:
                made.kill()


@contextmanager
def _processes(environment: Mapping[str, str]) -> Iterator[_Processes]:
    with tempfile.TemporaryDirectory(prefix="flower-bench-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        own = _Processes(home, {**environment, "FLWR_HOME": str(home / "flwr"), "FLWR_TELEMETRY_ENABLED": "0"})
        try:
            yield own
        finally:
            own.stop()


def flower_rounds(python: Path, exchange: Exchange, settings: Mapping[str, str]) -> tuple[list[float], float]:
    """The seconds of every round, and the bytes on the wire per participant and round, both ways."""
    tools = python.parent
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", **settings}
    with _processes(environment) as own:
        home, out = own.home, own.home / "times.json"
        _prepare(home)
        keys = [
            "--ssl-ca-certfile",
            home / "ca.crt",
            "--ssl-certfile",
            home / "link.crt",
            "--ssl-keyfile",
            home / "link.key",
        ]
        plain = ["--port", LINK_PORT, "--disable-runtime-dependency-installation"]
        own.start("link", [tools / "flower-superlink", *keys, *plain])
        own.until(lambda: "running on" in (home / "link.log").read_text(), "the start of the SuperLink")
        counter = TrafficCounter(LINK_PORT)
        for number in range(exchange.participants):
            where = ["--superlink", f"localhost:{counter.port}", "--port", NODE_PORT + number]
            own.start(f"node-{number}", [tools / "flower-supernode", "--root-certificates", home / "ca.crt", *where])
        own.start("run", [tools / "flwr", "run", APP, "bench", "-c", _config(exchange, out)])
        own.until(out.exists, "the end of the run")
        seconds = [float(second) for second in json.loads(out.read_text())]
        return seconds, counter.bytes / (exchange.participants * exchange.rounds)


def _prepare(home: Path) -> None:
    """Certificates of the SuperLink, and where `flwr run` finds it."""
    now = datetime.now(UTC)
    authority = create_authority(home / "ca", "bench", now)
    issue_credentials(authority, Role.AGGREGATOR, "link", home, now=now, hosts=["localhost", "127.0.0.1"])
    (home / "flwr").mkdir()
    (home / "flwr" / "config.toml").write_text(
        f'[superlink]\ndefault = "bench"\n[superlink.bench]\naddress = "localhost:{LINK_PORT}"\n'
        f'root-certificates = "{home / "ca.crt"}"\n'
    )


def _config(exchange: Exchange, out: Path) -> str:
    shape = f"rows={exchange.rows} rank={exchange.rank}"
    return f"nodes={exchange.participants} {shape} rounds={exchange.rounds} out='{out}'"

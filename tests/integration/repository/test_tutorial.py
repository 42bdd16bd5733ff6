"""The tutorial, followed to the letter: every block is typed on its machine, every file is carried as it says.

Three directories stand for the three machines, and localhost for the aggregator's name.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.support.paths import ROOT

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
STEP = re.compile(
    r"^```sh (?P<machines>[abc ]+?)(?P<service> service)?\n(?P<script>.*?)^```$"
    r"|^```toml (?P<file>\S+)\n(?P<text>.*?)^```$"
    r"|^- `(?P<carried>\S+)`: (?P<sender>[abc]) → (?P<receiver>[abc])$",
    re.DOTALL | re.MULTILINE,
)
READY = {"dcfpca-aggregator": "action=serving", "dcfpca-participant": "action=connected"}
SECONDS = 60.0

# Some thirty commands, each a process of its own.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400), pytest.mark.usefixtures("compiled_loops")]


@dataclass
class Machines:
    """Directories a, b and c, and what runs on them."""

    root: Path
    port: int
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def adapted(self, text: str) -> str:
        """The text with this machine's names instead of the consortium's."""
        local = text.replace("agg.hospital-b.example", "localhost").replace("0.0.0.0", "127.0.0.1")
        return local.replace(":7443", f":{self.port}")

    def type(self, machine: str, script: str) -> str:
        """What the block prints; it must succeed."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self.adapted(script)],
            cwd=self.root / machine,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"on machine {machine}:\n{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def type_at_once(self, where: list[str], script: str) -> str:
        """What the block prints on each of these machines; nobody there waits for the others."""
        with ThreadPoolExecutor() as people:
            return "".join(people.map(lambda machine: self.type(machine, script), where))

    def serve(self, where: list[str], script: str) -> None:
        """Start the block in the background on each machine, and wait until all say that they are ready."""
        started = [self._start(machine, script) for machine in where]
        ready, end = READY[script.split(maxsplit=1)[0]], time.monotonic() + SECONDS
        for process, log in started:
            while ready not in log.read_text():
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.05)

    def _start(self, machine: str, script: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = self.root / f"{machine}-{len(self.running)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self.adapted(script).strip()}"],
                cwd=self.root / machine,
                env=self._environment(),
                stdout=out,
                stderr=out,
            )
        self.running.append(process)
        return process, log

    def _environment(self) -> dict[str, str]:
        binaries = Path(sys.executable).parent
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DCFPCA")}
        return inherited | {"PATH": f"{binaries}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}

    def stop(self) -> None:
        for process in self.running:
            process.send_signal(signal.SIGTERM)
        for process in self.running:
            process.wait(SECONDS)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    made = Machines(tmp_path, port)
    for name in "abc":
        (tmp_path / name).mkdir()
    yield made
    made.stop()


def test_the_tutorial_works_as_written(machines: Machines) -> None:
    said = ""
    for step in STEP.finditer(TUTORIAL):
        if step["carried"]:
            shutil.copy(machines.root / step["sender"] / step["carried"], machines.root / step["receiver"])
        elif step["file"]:
            (machines.root / step["file"]).write_text(machines.adapted(step["text"]))
        else:
            where = step["machines"].split()
            if step["service"]:
                machines.serve(where, step["script"])
            else:
                said += machines.type_at_once(where, step["script"])
    assert "the log is complete" in said
    _check_what_each_has(machines.root)


def _check_what_each_has(root: Path) -> None:
    (exported,) = (root / "b" / "export").glob("**/U.npy")
    assert np.load(exported).shape == (60, 4)
    owners = {path.parent.name for path in (root / "b" / "export").rglob("L.npy")}
    assert owners == {"hospital-b", "university-c"}
    for machine in "abc":
        (result,) = (root / machine / "results").glob("*/S.npz")
        assert result.stat().st_size > 1000
        assert "data:image/png" in (root / machine / "site.html").read_text()
    assert "rank found" in (root / "b" / "report.html").read_text()


def test_every_block_of_the_tutorial_is_followed() -> None:
    fences = re.findall(r"^```\S.*$", TUTORIAL, re.MULTILINE)
    followed = [step for step in STEP.finditer(TUTORIAL) if not step["carried"]]
    assert len(fences) == len(followed)

"""A child process whose log lines can be awaited, and which can be stopped in every way there is."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]
PATIENCE = 40.0

# Processes fork from one that has imported what services import: each is spared the second or two that this takes. It
# runs `main` of its module all the same, with memory, descriptors and threads of its own.
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["tests.support.services.service_imports", __name__])
_FRESH = multiprocessing.get_context("spawn")


class Process:
    """`python -m MODULE ARGUMENTS` with its standard error read line by line as it comes."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path, *, fresh: bool = False) -> None:
        """`fresh` starts an interpreter that has imported nothing yet."""
        self.module = module
        self.lines: list[str] = []
        self._news = threading.Condition()
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        context = _FRESH if fresh else _FORKED
        self._output, output = context.Pipe(duplex=False)
        self._child = context.Process(target=_run_into_pipe, args=(module, arguments, environment, output))
        self._child.start()
        output.close()
        self._log = log.open("a")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        assert self._child.pid is not None
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        return self._child.is_alive()

    def _read(self) -> None:
        with self._output, self._log, os.fdopen(self._output.fileno(), closefd=False) as lines:
            for line in lines:
                self._log.write(line)
                self._log.flush()
                with self._news:
                    self.lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def events(self) -> list[Line]:
        """The log lines so far."""
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def await_line(self, wanted: Callable[[Line], bool], patience: float = PATIENCE, after: int = 0) -> Line:
        """The first log line, from line number `after` on, that is wanted; waits for it to be written."""
        end, seen = time.monotonic() + patience, after
        with self._news:
            while True:
                while seen < len(self.lines):
                    text, seen = self.lines[seen], seen + 1
                    if text.startswith("{") and wanted(line := json.loads(text)):
                        return line
                left = end - time.monotonic()
                if left <= 0 or not (self._reader.is_alive() or seen < len(self.lines)):
                    tail = "\n".join(self.lines[-25:])
                    raise AssertionError(f"{self.module} never said it; its last lines:\n{tail}")
                self._news.wait(left)

    def await_action(self, action: str, patience: float = PATIENCE, after: int = 0, **fields: object) -> Line:
        """The first line with this action and these fields."""
        return self.await_line(
            lambda line: line["action"] == action and all(line.get(name) == value for name, value in fields.items()),
            patience,
            after,
        )

    def signal(self, number: signal.Signals) -> None:
        if self.is_alive:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._child.kill()
        self.wait()

    def stop(self) -> int:
        """SIGTERM, and wait for an orderly end."""
        if self.is_alive:
            self._child.terminate()
        return self.wait()

    def wait(self, patience: float = PATIENCE) -> int:
        self._child.join(patience)
        code = self._child.exitcode
        if code is None:
            raise TimeoutError(f"{self.module} did not end within {patience:g} seconds")
        self._reader.join(patience)
        return code

    def wait_briefly(self) -> None:
        """Return when it has ended, or after a moment."""
        self._child.join(0.2)

    def text(self) -> str:
        return "\n".join(self.lines)

    def memory_kib(self) -> int:
        """Resident memory now."""
        return _status_kib(self.pid, "VmRSS")

    def peak_memory_kib(self) -> int:
        """Most resident memory so far."""
        return _status_kib(self.pid, "VmHWM")

    def descriptors(self) -> int:
        """Open file descriptors now."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


def run_to_end(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE ARGUMENTS` in a process of its own, which must end by itself; forked like the services."""
    with tempfile.TemporaryDirectory() as folder:
        child = _FORKED.Process(target=_run_into_files, args=(module, arguments, dict(os.environ), folder))
        child.start()
        child.join(PATIENCE)
        if child.exitcode is None:
            child.kill()
            raise AssertionError(f"{module} {' '.join(arguments)} still runs after {PATIENCE:g} seconds")
        stdout, stderr = (Path(folder, name).read_text() for name in ("stdout", "stderr"))
        return subprocess.CompletedProcess([module, *arguments], child.exitcode, stdout, stderr)


def _run_into_files(module: str, arguments: Sequence[str], environment: Mapping[str, str], folder: str) -> None:
    with Path(folder, "stdout").open("w") as stdout, Path(folder, "stderr").open("w") as stderr:
        _run(module, arguments, environment, stdout.fileno(), stderr.fileno())


def _run_into_pipe(module: str, arguments: Sequence[str], environment: Mapping[str, str], pipe: Connection) -> None:
    with pipe:
        _run(module, arguments, environment, pipe.fileno(), pipe.fileno())


def _run(module: str, arguments: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int) -> None:
    """Become `python -m MODULE ARGUMENTS` with this environment and these descriptors as its outputs."""
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise AssertionError(f"{field} is not reported for process {pid}")

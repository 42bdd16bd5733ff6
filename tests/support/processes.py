"""A child process whose log lines can be awaited, and which can be stopped in every way there is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Line = Mapping[str, Any]
PATIENCE = 40.0


class Process:
    """`python -m MODULE ARGUMENTS` with its standard error read line by line as it comes."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        self.module = module
        self.lines: list[str] = []
        self._news = threading.Condition()
        environment = {"GRPC_VERBOSITY": "NONE"} | os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self._child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self._log = log.open("a")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._log.write(line)
            self._log.flush()
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()
        self._log.close()
        self._child.stdout.close()
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
        self._child.send_signal(number)

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
        code = self._child.wait(patience)
        self._reader.join(patience)
        return code

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


def _status_kib(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise AssertionError(f"{field} is not told for process {pid}")

"""Child processes with log files that are stopped when their context ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

from dcfpca.errors import DcfpcaError

_STOP_SECONDS = 8.0
_LOOK_SECONDS = 0.03
_TAIL_LINES = 5
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)


class ChildFailed(DcfpcaError):
    """A process of the federation ended unexpectedly, or did not do its part in time."""


@dataclass(slots=True)
class Child:
    """One process, its command line and its log file."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    process: subprocess.Popen[bytes]
    killed: bool = False

    def check(self) -> None:
        """Raise ChildFailed if it exited with an error and was not killed by `kill`."""
        if self.process.poll() and not self.killed:
            last = " / ".join(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
            sentence = f"{self.name} ended with status {self.process.returncode}: {last or 'its log is empty'}"
            raise ChildFailed(sentence, f"its log: {self.log}")

    def kill(self) -> None:
        """Kill it with SIGKILL and wait until it is gone."""
        self.killed = True
        self.process.kill()
        self.process.wait()


class Children:
    """The processes of a federation. As a context manager, it stops them all on exit."""

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}

    def __enter__(self) -> Children:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __getitem__(self, name: str) -> Child:
        return self._children[name]

    def start(self, name: str, arguments: Sequence[str], log: Path) -> Child:
        """Start `python -m …` under this name; the log is appended to."""
        with log.open("ab") as out:
            # A session of its own, so that Ctrl-C reaches only this process, which stops the others in order.
            process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._children[name] = Child(name, tuple(arguments), log, process)
        return self._children[name]

    def restart(self, name: str) -> Child:
        """Start a process again with the same command line and log."""
        before = self._children[name]
        return self.start(name, before.arguments, before.log)

    def check(self) -> None:
        """Raise ChildFailed if any process has failed."""
        for child in self._children.values():
            child.check()

    def until(self, done: Callable[[], bool], what: str, seconds: float) -> None:
        """Wait until `done()` holds; raises ChildFailed when a process fails or the time is up."""
        deadline = time.monotonic() + seconds
        while not done():
            self.check()
            if time.monotonic() > deadline:
                logs = ", ".join(str(child.log) for child in self._children.values())
                raise ChildFailed(f"{what} did not happen within {seconds:g} s", f"the logs: {logs}")
            time.sleep(_LOOK_SECONDS)

    def stop(self) -> None:
        """Terminate all, and kill those that are still running after a grace period."""
        for child in self._children.values():
            child.process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for child in self._children.values():
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that contexts exit and child processes are stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in _ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

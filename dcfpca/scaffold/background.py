"""Background processes with pid files. A process holds a lock on its pid file for as long as it lives.

The lock tells a live process from a stale pid file, whose number may belong to somebody else's process by now.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from dcfpca.errors import DcfpcaError

READY_SECONDS = 90.0
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_TAIL_LINES = 5


class ProcessEnded(DcfpcaError):
    """A background process ended, or did not get ready in time."""


@dataclass(frozen=True, slots=True)
class Background:
    """A process by its directory, in which its `pid` and `log` files lie."""

    name: str
    directory: Path

    @property
    def log(self) -> Path:
        """Where it writes its log."""
        return self.directory / "log"

    def is_running(self) -> bool:
        """Whether the process lives."""
        return self.pid() is not None

    def start(self, arguments: Sequence[str]) -> bool:
        """Start `python -m …` unless it runs already; returns whether it was started."""
        descriptor = os.open(self.directory / "pid", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        _keep_open_files_here()
        os.set_inheritable(descriptor, True)  # the lock belongs to the open file, and so to the process that keeps it
        writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        # Not subprocess: the child is meant to outlive this process, and a Popen object warns of a child that does.
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", *arguments],
            os.environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.log), writing, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{pid}\n".encode())
        os.close(descriptor)
        return True

    def require_running(self) -> None:
        """Raise ProcessEnded with the end of its log if it does not run."""
        if not self.is_running():
            sentence, hint = _last_words(self.log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
            raise ProcessEnded(f"{self.name} has ended: {sentence}", f"{hint}its log: {self.log}")

    def stop(self) -> bool:
        """Tell the process to stop and wait until it has; kill it after a while. Returns whether it was running."""
        running = self.tell_to_stop()
        self.await_end()
        return running

    def tell_to_stop(self) -> bool:
        """Send SIGTERM, without waiting for the end; returns whether it was running."""
        return self._signal(signal.SIGTERM)

    def await_end(self) -> None:
        """Wait for the end of a process that was told to stop; kill it after a while."""
        deadline = time.monotonic() + _STOP_SECONDS
        while self.is_running():
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(_LOOK_SECONDS)

    def kill(self) -> None:
        """Kill it with SIGKILL and wait until it is gone."""
        self._signal(signal.SIGKILL)
        while self.is_running():
            time.sleep(_LOOK_SECONDS)

    def _signal(self, number: signal.Signals) -> bool:
        pid = self.pid()
        if pid is not None:
            os.kill(pid, number)
        return pid is not None

    def pid(self) -> int | None:
        """The number of the live process; None if there is none."""
        try:
            descriptor = os.open(self.directory / "pid", os.O_RDWR)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(descriptor, 32) or b"0") or None
        else:
            return None
        finally:
            os.close(descriptor)


def until(done: Callable[[], bool], processes: Iterable[Background], what: str, seconds: float = READY_SECONDS) -> None:
    """Wait until `done()` holds; ProcessEnded when one of these processes ends before, or the time is up."""
    deadline, watched = time.monotonic() + seconds, list(processes)
    while not done():
        for process in watched:
            process.require_running()
        if time.monotonic() > deadline:
            logs = ", ".join(str(process.log) for process in watched)
            raise ProcessEnded(f"{what} did not happen within {seconds:g} s", f"the logs: {logs}")
        time.sleep(_LOOK_SECONDS)


@contextmanager
def signals_exit() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that contexts exit and stop the processes they started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _last_words(log: Sequence[str]) -> tuple[str, str]:
    """Why a process ended, and its hint with a semicolon after it: its last `error:`, else the end of its log."""
    places = [place for place, line in enumerate(log) if line.startswith("error: ")]
    if not places:
        return " / ".join(log) or "its log is empty", ""
    sentence, *more = log[places[-1] :]
    hints = [line.removeprefix("hint: ") for line in more if line.startswith("hint: ")]
    return sentence.removeprefix("error: "), "".join(f"{hint}; " for hint in hints)


def _keep_open_files_here() -> None:
    """Keep children from inheriting what a shell left open: a reader of such a pipe would wait until they end."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 numbers, not paths
        number = int(name)
        if number > 2:
            with suppress(OSError):
                os.set_inheritable(number, False)

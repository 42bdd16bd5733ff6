"""Background processes with pid files. A process holds a lock on its pid file for as long as it lives.

The lock tells a live process from a stale pid file, whose number may belong to somebody else's process by now.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dcfpca.errors import DcfpcaError

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
        return self._pid() is not None

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
        pid = self._pid()
        if pid is None:
            return False
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while self.is_running():
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                deadline = float("inf")
            time.sleep(_LOOK_SECONDS)
        return True

    def _pid(self) -> int | None:
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


def _last_words(log: Sequence[str]) -> tuple[str, str]:
    """Why a process ended, and its hint with a semicolon after it: its last `error:`, else the end of its log."""
    places = [place for place, line in enumerate(log) if line.startswith("error: ")]
    if not places:
        return " / ".join(log) or "its log is empty", ""
    sentence, *more = log[places[-1] :]
    hints = [line.removeprefix("hint: ") for line in more if line.startswith("hint: ")]
    return sentence.removeprefix("error: "), "".join(f"{hint}; " for hint in hints)


def _keep_open_files_here() -> None:
    """Let no child inherit what a shell left open: whoever reads from such a pipe would wait for the child to end."""
    for name in os.listdir("/dev/fd"):  # noqa: PTH208 numbers, not paths
        number = int(name)
        if number > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(number, False)

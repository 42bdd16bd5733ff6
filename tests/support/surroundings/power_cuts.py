"""A disk that loses what was not synced: every state in which a power cut could leave a directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest


class Killed(BaseException):
    """The process ends here; what it wrote is still in the page cache."""


class UnsyncedDisk:
    """Follows what `os.fsync` and `os.fdatasync` put on the disk of one flat directory.

    `before_sync` is called before each of them, when the most is at stake; it may raise `Killed`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._content: dict[int, bytes] = {}  # by inode
        self._entries: dict[str, int] = {}
        self.before_sync: Callable[[], None] = lambda: None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow the syncs of this process."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(os, "fsync", self._sync)
            patched.setattr(os, "fdatasync", self._sync)
            yield

    def _sync(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if self._directory.resolve() not in (path, path.parent):
            return
        self.before_sync()
        if path == self._directory.resolve():
            self._entries = {one.name: one.stat().st_ino for one in self._directory.iterdir() if one.is_file()}
        else:
            self._content[os.fstat(descriptor).st_ino] = path.read_bytes()

    def after_power_cuts(self, into: Path) -> Iterator[Path]:
        """Directories as a power cut at this moment may leave them: of each file that is not on the disk as it is, the
        old content, the new one, or a mixture; and no file at all whose name is not on the disk."""
        files = [one for one in self._directory.iterdir() if one.is_file() and one.suffix in (".step", ".keys")]
        choices = [list(self._possible(one)) for one in files]
        for number, chosen in enumerate(product(*choices)):
            image = into / f"cut-{number}"
            image.mkdir(parents=True)
            for one, content in zip(files, chosen, strict=True):
                if content is not None:
                    (image / one.name).write_bytes(content)
            yield image

    def _possible(self, file: Path) -> Iterator[bytes | None]:
        node, held = file.stat().st_ino, file.read_bytes()
        there = self._content.get(node, b"")
        yield held
        if there != held:
            half = len(held) // 2
            yield there
            yield held[:half] + there[half:]
            yield there[:half] + held[half:]
        if self._entries.get(file.name) != node:
            yield None

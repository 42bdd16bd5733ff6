"""The local steps of open runs, each in a file of its own that carries its checksum.

The latest step of a run is the whole file with the highest number. A step is written over a file that nobody needs any
more: neither the latest, nor the last one that is known to be on the disk. A write that is cut short leaves both as
they are. Overwriting changes no directory, so putting a step on the disk is one wait for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from contextlib import suppress
from itertools import count
from pathlib import Path

from dcfpca.atomic_files import sync_directory
from dcfpca.errors import BadInput
from dcfpca.logs import log
from participant.state.step_file import LocalStep, StepLabel, read_step, write_step


class StepFiles:
    """The step files below a state directory. One thread writes a run's steps at a time; another may call `flush`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._latest: dict[str, tuple[int, Path]] = {}  # by run: the number of the latest step, and its file
        self._on_disk: dict[str, Path] = {}  # by run: the last file that would survive a power cut
        self._flushing: Path | None = None
        self._mapped: set[Path] = set()  # files that arrays of this process may still read
        self._entered: set[Path] = set()  # files whose names are surely on the disk: a kill may have left others

    def save(self, run_id: str, step: LocalStep, format: str, *, durable: bool) -> None:
        """Make this the latest step of a run. With `durable` it survives a power cut when this returns, else a kill."""
        number = (self._latest[run_id][0] if run_id in self._latest else self._last_number(run_id)) + 1
        path = self._free(run_id)
        if path in self._mapped:
            self._remove(path)
        write_step(path, StepLabel(number, format), step)
        if durable:
            self._sync(run_id, path)
        self._latest[run_id] = number, path

    def latest(self, run_id: str) -> tuple[StepLabel, LocalStep] | None:
        """The latest step, memory-mapped; None when there is no whole one. Damaged files are logged.

        It survives a power cut from now on: whoever wrote it may have been killed before it did.
        """
        found = [(*one, path) for path in self._files(run_id) if (one := self._read(run_id, path)) is not None]
        if not found:
            return None
        label, step, path = max(found, key=lambda one: one[0].number)
        self._latest[run_id] = label.number, path
        self._mapped.update(path for *_, path in found)
        self._sync(run_id, path)
        return label, step

    def forget(self, run_id: str) -> None:
        """Remove the files of a run."""
        for path in self._files(run_id):
            self._remove(path)
        self._latest.pop(run_id, None)
        self._on_disk.pop(run_id, None)

    def forget_all_but(self, run_ids: Collection[str]) -> None:
        """Remove the files of all other runs."""
        for path in self._directory.glob("*.step"):
            found = re.fullmatch(r"run-(.+)-\d+\.step", path.name)
            if found is not None and found[1] not in run_ids:
                self._remove(path)

    def flush(self) -> None:
        """Put the latest step of every run on the disk."""
        for run_id, (_, path) in list(self._latest.items()):
            if self._on_disk.get(run_id) != path:
                self._flushing = path
                with suppress(FileNotFoundError):  # the run may end, and its files go, at any moment
                    self._sync(run_id, path)
                self._flushing = None

    def _remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        self._mapped.discard(path)
        self._entered.discard(path)

    def _sync(self, run_id: str, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
        if path not in self._entered:
            sync_directory(self._directory)
            self._entered.add(path)
        self._on_disk[run_id] = path

    def _free(self, run_id: str) -> Path:
        needed = {self._latest.get(run_id, (0, None))[1], self._on_disk.get(run_id), self._flushing}
        paths = (self._directory / f"run-{run_id}-{place}.step" for place in count())
        return next(path for path in paths if path not in needed)

    def _files(self, run_id: str) -> list[Path]:
        name = re.compile(rf"run-{re.escape(run_id)}-\d+\.step")
        return [path for path in sorted(self._directory.glob("*.step")) if name.fullmatch(path.name)]

    def _last_number(self, run_id: str) -> int:
        found = self.latest(run_id)
        return found[0].number if found else 0

    def _read(self, run_id: str, path: Path) -> tuple[StepLabel, LocalStep] | None:
        try:
            return read_step(path)
        except BadInput as error:
            hint = "none is needed after a kill, which may cut a write short; else look at the disk"
            log("step_file_damaged", level="warning", run=run_id, reason=str(error), hint=hint)
            return None

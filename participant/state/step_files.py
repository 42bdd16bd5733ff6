"""The local steps of open runs, each in a file of its own that carries its checksum: a line of JSON with the names,
types and shapes of arrays, their raw bytes, and a CRC-32.

The latest step of a run is the whole file with the highest number. A step is written over a file that nobody needs any
more: neither the latest, nor the last one that is known to be on the disk. A write that is cut short leaves both as
they are. Overwriting changes no directory, so putting a step on the disk is one wait for it.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dcfpca.atomic_files import sync_directory
from dcfpca.errors import BadInput
from dcfpca.logs import log
from participant.session.events import LocalStep

Arrays = Mapping[str, NDArray[np.generic]]
CHECKSUM_CHUNK = 4 << 20
CHECKSUM_BYTES = 4


def write_arrays(file: BinaryIO, arrays: Arrays) -> None:
    """Write the arrays, and last a CRC-32 of everything before, which detects damage but not tampering."""
    flat = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    listed = [[name, array.dtype.str, array.shape] for name, array in flat.items()]
    head = json.dumps(listed).encode() + b"\n"
    file.write(head)
    checksum = zlib.crc32(head)
    for array in flat.values():
        content = array.reshape(-1).view(np.uint8).data
        file.write(content)
        checksum = zlib.crc32(content, checksum)
        release_pages(array)
    file.write(checksum.to_bytes(CHECKSUM_BYTES, "little"))


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Memory-mapped arrays of a file; BadInput when it cannot be read or its checksum is not that of its content."""
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not _is_whole(content):
        raise BadInput(f"{path} is damaged")
    head = content.readline()
    offset, arrays = len(head), {}
    for name, kind, shape in json.loads(head):
        arrays[name] = np.ndarray(shape, np.dtype(kind), content, offset)
        offset += arrays[name].nbytes
    return arrays


def _is_whole(content: mmap.mmap) -> bool:
    found, size = 0, len(content) - CHECKSUM_BYTES
    with memoryview(content) as view:
        for start in range(0, max(size, 0), CHECKSUM_CHUNK):
            found = zlib.crc32(view[start : min(start + CHECKSUM_CHUNK, size)], found)
            content.madvise(mmap.MADV_DONTNEED)
    return size > 0 and content[size:] == found.to_bytes(CHECKSUM_BYTES, "little")


def release_pages(array: NDArray[Any]) -> None:
    """Release the resident pages of a memory-mapped array; a later read maps them again. Others are left alone."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if isinstance(owner, mmap.mmap):
        owner.madvise(mmap.MADV_DONTNEED)


_ABOUT, _SITE = "about", "site."
_STEP_FILE = re.compile(r"run-(.+)-\d+\.step")


@dataclass(frozen=True, slots=True)
class StepLabel:
    """Which of a run's steps a file holds, counted from 1, and the format of the site's state in it."""

    number: int
    format: str


def write_step(path: Path, label: StepLabel, step: LocalStep) -> None:
    """Write the file, in place where there is one. Until it is written whole, its checksum is wrong."""
    about = {"number": label.number, "format": label.format, "round": step.round, "stage": step.stage}
    text = json.dumps(about | {"consensus": step.consensus_sha256.hex(), "opening": step.opening.hex()}).encode()
    arrays: dict[str, NDArray[np.generic]] = {
        _ABOUT: np.frombuffer(text, np.uint8),
        "update": step.vector,
        "broadcast": step.broadcast,
        **{f"{_SITE}{key}": value for key, value in step.snapshot.items()},
    }
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        write_arrays(file, arrays)
        file.truncate()


def read_step(path: Path) -> tuple[StepLabel, LocalStep]:
    """The step in this file, memory-mapped; BadInput when the file is incomplete, damaged, or of an earlier version."""
    arrays = read_arrays(path)
    try:
        about = json.loads(arrays.pop(_ABOUT).tobytes())
        vector, broadcast = arrays.pop("update"), arrays.pop("broadcast")
        snapshot = {key.removeprefix(_SITE): arrays[key] for key in arrays}
        label = StepLabel(int(about["number"]), str(about["format"]))
        consensus, opening = bytes.fromhex(about["consensus"]), bytes.fromhex(about.get("opening", ""))
        stage = str(about["stage"])
        return label, LocalStep(int(about["round"]), consensus, vector, snapshot, broadcast, stage, opening)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{path} is no step file of this version: {error!r}") from None


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
        """Make this the latest step of a run. With `durable` it survives a power cut when this returns, else a kill.

        Takes long, so it is for a thread; it does not use the database.
        """
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
            if (found := _STEP_FILE.fullmatch(path.name)) is not None and found[1] not in run_ids:
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
        # One expression for all runs: Python keeps every expression that it compiles, and a daemon has many runs.
        named = ((path, _STEP_FILE.fullmatch(path.name)) for path in sorted(self._directory.glob("*.step")))
        return [path for path, found in named if found is not None and found[1] == run_id]

    def _last_number(self, run_id: str) -> int:
        found = self.latest(run_id)
        return found[0].number if found else 0

    def _read(self, run_id: str, path: Path) -> tuple[StepLabel, LocalStep] | None:
        try:
            return read_step(path)
        except BadInput as error:
            hint = "after a kill this is expected, because a write may be cut short; otherwise check the disk"
            log("step_file_damaged", level="warning", run=run_id, reason=str(error), hint=hint)
            return None

"""The states of a site's parts, kept on disk because V_i has a row for every column."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

State = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class _Slot:
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


class PartStates:
    """States in the order they were added, in an unnamed temporary file that disappears with the process.

    An array that is equal in every part, such as U, is stored once.
    """

    def __init__(self, directory: Path | None) -> None:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
        self._file = TemporaryFile(dir=directory)  # noqa: SIM115  it lives as long as this object
        weakref.finalize(self, self._file.close)
        self._size = 0
        self._slots: list[dict[str, _Slot]] = []
        self._first: dict[str, NDArray[np.generic]] = {}

    def put(self, state: State) -> None:
        """Add the state of the next part."""
        if not self._slots:
            self._first = {name: np.array(array) for name, array in state.items()}
        self._slots.append({name: self._slot(name, array) for name, array in state.items()})

    def get(self, place: int) -> dict[str, NDArray[np.generic]]:
        """The state of a part; empty if none was added for it."""
        if place >= len(self._slots):
            return {}
        self._file.flush()
        return {name: self._read(slot) for name, slot in self._slots[place].items()}

    def mapped(self) -> dict[str, NDArray[np.generic]]:
        """All arrays as "part.name", memory-mapped; an array that a part shares with the first one is left out."""
        self._file.flush()
        if self._size == 0:
            return {}
        buffer = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_READ)
        shared = set(self._slots[0].values())
        return {
            f"{place}.{name}": np.ndarray(slot.shape, slot.dtype, buffer, slot.offset)
            for place, slots in enumerate(self._slots)
            for name, slot in slots.items()
            if place == 0 or slot not in shared
        }

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _slot(self, name: str, array: NDArray[np.generic]) -> _Slot:
        if self._slots and name in self._first and np.array_equal(self._first[name], array):
            return self._slots[0][name]
        return self._append(array)

    def _append(self, array: NDArray[np.generic]) -> _Slot:
        content = np.ascontiguousarray(array)
        slot = _Slot(self._size, content.dtype, array.shape)
        self._file.write(content.reshape(-1).view(np.uint8).data)
        self._size += slot.size
        return slot

    def _read(self, slot: _Slot) -> NDArray[np.generic]:
        content = os.pread(self._file.fileno(), slot.size, slot.offset)
        return np.frombuffer(content, slot.dtype).reshape(slot.shape)


def shared_once(states: Sequence[State]) -> dict[str, NDArray[np.generic]]:
    """All arrays as "part.name"; an array that equals the first part's is left out."""
    first = states[0]
    return {
        f"{place}.{name}": array
        for place, state in enumerate(states)
        for name, array in state.items()
        if place == 0 or not (name in first and np.array_equal(first[name], array))
    }


def unshared(snapshot: State, parts: int) -> list[dict[str, NDArray[np.generic]]]:
    """Inverse of `mapped` and `shared_once`: the states, one for each part."""
    states: list[dict[str, NDArray[np.generic]]] = [{} for _ in range(parts)]
    for key, array in snapshot.items():
        place, dot, name = key.partition(".")
        if dot:
            states[int(place)][name] = array
    return [{**states[0], **state} for state in states]

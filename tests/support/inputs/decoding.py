"""Sound input of a decoder, and how it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Decoder:
    """Sound input, and how it is read."""

    sound: bytes
    read: Callable[[bytes], object]
    slow: int = 1
    """How many times fewer cases it gets."""


def from_file(path: Path, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A decoder of files, given bytes."""

    def call(body: bytes) -> object:
        path.write_bytes(body)
        path.chmod(0o600)
        return read(path)

    return call

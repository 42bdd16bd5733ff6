"""Several arrays in one file, written and read at the speed of the disk: a line of JSON, then the raw bytes."""

from __future__ import annotations

import json
import mmap
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput

Arrays = Mapping[str, NDArray[np.generic]]
PIECE = 4 << 20


def write_arrays(file: BinaryIO, arrays: Arrays) -> int:
    """Write them; returns a checksum of the file, which is against damage, not against malice."""
    flat = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    listed = [[name, array.dtype.str, array.shape] for name, array in flat.items()]
    head = json.dumps(listed).encode() + b"\n"
    file.write(head)
    checksum = zlib.crc32(head)
    for array in flat.values():
        content = array.reshape(-1).view(np.uint8).data
        file.write(content)
        checksum = zlib.crc32(content, checksum)
        give_back(array)
    return checksum


def read_arrays(path: Path, checksum: int) -> dict[str, NDArray[Any]]:
    """The arrays of a file whose checksum is known, mapped; BadInput when it is not that file any more."""
    try:
        with path.open("rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:  # an empty file cannot be mapped
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if _checksum(content) != checksum:
        raise BadInput(f"{path} is damaged")
    head = content.readline()
    offset, arrays = len(head), {}
    for name, kind, shape in json.loads(head):
        arrays[name] = np.ndarray(shape, np.dtype(kind), content, offset)
        offset += arrays[name].nbytes
    return arrays


def _checksum(content: mmap.mmap) -> int:
    found = 0
    with memoryview(content) as view:
        for start in range(0, len(view), PIECE):
            found = zlib.crc32(view[start : start + PIECE], found)
            content.madvise(mmap.MADV_DONTNEED)
    return found


def give_back(array: NDArray[Any]) -> None:
    """Let go of the memory behind an array that is mapped from a file; what is read again is mapped again."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if isinstance(owner, mmap.mmap):
        owner.madvise(mmap.MADV_DONTNEED)

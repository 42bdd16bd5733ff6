"""Several named arrays in one file: a line of JSON with names, types and shapes, then the raw bytes."""

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
CHECKSUM_CHUNK = 4 << 20


def write_arrays(file: BinaryIO, arrays: Arrays) -> int:
    """Write the arrays; returns a CRC-32 of the file, which detects damage but not tampering."""
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
    return checksum


def read_arrays(path: Path, checksum: int) -> dict[str, NDArray[Any]]:
    """Memory-mapped arrays of a file; BadInput when it cannot be read or does not have this checksum."""
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
        for start in range(0, len(view), CHECKSUM_CHUNK):
            found = zlib.crc32(view[start : start + CHECKSUM_CHUNK], found)
            content.madvise(mmap.MADV_DONTNEED)
    return found


def release_pages(array: NDArray[Any]) -> None:
    """Release the resident pages of a memory-mapped array; a later read maps them again. Others are left alone."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if isinstance(owner, mmap.mmap):
        owner.madvise(mmap.MADV_DONTNEED)

"""Several named arrays in one file: a line of JSON with names, types and shapes, the raw bytes, and a checksum."""

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

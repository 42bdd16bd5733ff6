"""Several arrays in one file, written and read at the speed of the disk: a line of JSON, then the raw bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadInput

Arrays = Mapping[str, NDArray[np.generic]]


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
    return checksum


def read_arrays(path: Path, checksum: int) -> dict[str, NDArray[Any]]:
    """The arrays of a file whose checksum is known; BadInput when it is not that file any more."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    if zlib.crc32(content) != checksum:
        raise BadInput(f"{path} is damaged")
    head, _, _ = content.partition(b"\n")
    offset, arrays = len(head) + 1, {}
    for name, dtype, shape in json.loads(head):
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(content, dtype=np.dtype(dtype), count=count, offset=offset).reshape(shape)
        arrays[name] = array
        offset += array.nbytes
    return arrays

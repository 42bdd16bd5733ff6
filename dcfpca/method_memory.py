"""What a method keeps between rounds: its memory at the aggregator as canonical bytes, and the versions of the formats.

Both sides compare the digest of the memory, and a site can repeat a round from it. The formats of memory and of sites'
snapshots are stored with every run. A run whose format differs from what this software writes is paused, not continued,
because its numbers would be misread. Raise a version with every change of the names, shapes or meaning of what is kept.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadMessage
from dcfpca.spec import RunSpec

_MEMORY = {"subspace": 5, "gradient": 5, "private": 4}
_SNAPSHOT = {"subspace": 5, "gradient": 5, "private": 4}
_LENGTH = struct.Struct("<I")
_DTYPES = {"<f8", "<i8", "|b1"}
_MOST_AXES = 4
_EXTENT_BYTES = 8


def memory_format(spec: RunSpec) -> str:
    """The format of the memory that the method of this spec keeps at the aggregator, such as `subspace/5 closing`."""
    return _format(spec, _MEMORY)


def snapshot_format(spec: RunSpec) -> str:
    """The format of the snapshot that the method of this spec keeps at a site.

    Private runs keep no snapshot and have a version all the same: a step that is repeated must draw the same noise.
    """
    return _format(spec, _SNAPSHOT)


def _format(spec: RunSpec, versions: dict[str, int]) -> str:
    method = spec.method if spec.privacy is None else "private"
    around = {
        "closing": spec.closing_rounds,
        "scaled": spec.scaling != "none",
        "counted": spec.missing_features == "allow",
    }
    return " ".join([f"{method}/{versions[method]}", *(word for word, there in around.items() if there)])


def encode_memory(memory: Mapping[str, NDArray[Any]]) -> bytes:
    """The arrays in the order of their names, each as name, dtype, shape and little-endian row-major bytes."""
    # Not .npy, which holds arrays as well: its reader parses headers as Python literals, and allocates what a shape
    # claims before it knows how many bytes there are. A site reads these bytes from a peer.
    pieces = []
    for name in sorted(memory):
        array = np.asarray(memory[name])
        little: NDArray[Any] = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
        if little.dtype.str not in _DTYPES or little.ndim > _MOST_AXES:
            raise BadMessage(f"the method keeps {name} as {little.dtype.str}, which is not sent to sites")
        for text in (name.encode(), little.dtype.str.encode()):
            pieces += [_LENGTH.pack(len(text)), text]
        pieces += [_LENGTH.pack(little.ndim), struct.pack(f"<{little.ndim}Q", *little.shape), little.tobytes()]
    return b"".join(pieces)


def decode_memory(encoded: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an encoded memory, read-only; BadMessage unless the bytes are exactly such an encoding."""
    memory: dict[str, NDArray[Any]] = {}
    place, before = 0, ""
    try:
        while place < len(encoded):
            name, array, place = _decoded(encoded, place)
            if memory and name <= before:
                raise BadMessage("the arrays of the method's memory are not in the order of their names")
            memory[name], before = array, name
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise BadMessage(f"the method's memory cannot be read: {error}") from error
    return memory


def _decoded(encoded: bytes, place: int) -> tuple[str, NDArray[Any], int]:
    """The array at this place with its name, and the place after it. Nothing is made before its bytes are there."""
    texts = []
    for _ in ("name", "dtype"):
        (length,) = _LENGTH.unpack_from(encoded, place)
        texts.append(encoded[place + _LENGTH.size : place + _LENGTH.size + length].decode())
        place += _LENGTH.size + length
    (name, dtype), (axes,) = texts, _LENGTH.unpack_from(encoded, place)
    if dtype not in _DTYPES or axes > _MOST_AXES:
        raise BadMessage(f"the method's memory has an array of type {dtype[:20]!r} with {axes} axes")
    shape = struct.unpack_from(f"<{axes}Q", encoded, place + _LENGTH.size)
    start = place + _LENGTH.size + axes * _EXTENT_BYTES
    end = start + math.prod(shape) * np.dtype(dtype).itemsize
    if end > len(encoded):
        raise BadMessage("the method's memory is cut short")
    array: NDArray[Any] = np.frombuffer(encoded[start:end], dtype)
    return name, array.reshape(shape), end

"""The chunks of a streamed vector, encoded and read by hand: protobuf would copy each of them two or three times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dcfpca.chunked_vectors import Buffer, field_at, varint, varint_at
from dcfpca.v1 import rounds_pb2 as rounds
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire_constants import CHUNK_BYTES

# The chunk has the same number in a part of a tensor and of an update.
_CHUNK = bytes([types.TensorPart.CHUNK_FIELD_NUMBER << 3 | 2])
_OFFSET, _DATA = bytes([types.Chunk.OFFSET_FIELD_NUMBER << 3]), bytes([types.Chunk.DATA_FIELD_NUMBER << 3 | 2])


class ChunkView(NamedTuple):
    """A `Chunk`, decoded; `data` is a view of the message itself."""

    offset: int
    data: Buffer


def encoded_chunks(payload: Buffer, offset: int = 0) -> Iterator[bytes]:
    """The bytes from `offset` on as parts of a tensor or of an update, each with a chunk of at most 1 MiB."""
    view = memoryview(payload)
    for start in range(offset, len(view), CHUNK_BYTES):
        data = view[start : start + CHUNK_BYTES]
        head = types.Chunk(offset=start).SerializeToString() + _DATA + varint(len(data))
        yield b"".join((_CHUNK, varint(len(head) + len(data)), head, data))


def read_tensor_part(body: bytes) -> types.TensorPart | ChunkView:
    """Decode a `TensorPart`; a chunk in the form of `encoded_chunks` is not copied."""
    return _chunk_in(body) or types.TensorPart.FromString(body)


def read_update_part(body: bytes) -> rounds.UpdatePart | ChunkView:
    """Decode an `UpdatePart`; a chunk in the form of `encoded_chunks` is not copied."""
    return _chunk_in(body) or rounds.UpdatePart.FromString(body)


def _chunk_in(body: bytes) -> ChunkView | None:
    """The chunk, if the message is one in the form of `encoded_chunks`."""
    start, size = field_at(body, 0, _CHUNK)
    if not size or start + size != len(body):
        return None
    offset = 0
    if body[start : start + 1] == _OFFSET:
        offset, start = varint_at(body, start + 1)
    data, length = field_at(body, start, _DATA) if start else (0, 0)
    return ChunkView(offset, memoryview(body)[data:]) if length and data + length == len(body) else None

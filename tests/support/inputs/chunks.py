"""The bytes of a tensor in protobuf's own chunks; the services encode theirs by hand."""

from __future__ import annotations

from collections.abc import Iterator

from dcfpca.v1.types_pb2 import Chunk
from dcfpca.wire.constants import CHUNK_BYTES


def chunks(payload: bytes, offset: int = 0) -> Iterator[Chunk]:
    """The bytes from `offset` on, in messages of at most 1 MiB."""
    for start in range(offset, len(payload), CHUNK_BYTES):
        yield Chunk(offset=start, data=bytes(payload[start : start + CHUNK_BYTES]))

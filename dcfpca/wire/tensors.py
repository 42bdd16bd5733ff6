"""Vectors as messages, whole or in chunks, with their checks. Raw little-endian bytes, never pickle.

Chunks and whole updates are encoded and read by hand: protobuf would copy each of them two or three times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dcfpca.errors import BadMessage
from dcfpca.rpca.method import FloatArray, Layout, TensorMessage
from dcfpca.v1 import rounds_pb2 as rounds
from dcfpca.v1 import types_pb2 as pb
from dcfpca.wire.constants import AT_ONCE_BYTES, CHUNK_BYTES, MESSAGE_BYTES

Buffer = bytes | bytearray | memoryview
FLOAT64 = pb.DTYPE_FLOAT64
"""The number format of every consensus, and of the updates of a plain run."""


class DigestedBytes(NamedTuple):
    """Bytes and the state of a SHA-256 over them: taken once, and extended by whoever binds more data to them."""

    data: Buffer
    sha: hashlib._Hash
    sha256: bytes


def digested(data: Buffer) -> DigestedBytes:
    """The bytes with their digest."""
    sha = hashlib.sha256(data)
    return DigestedBytes(data, sha, sha.digest())


def verified(header: TensorFacts, data: Buffer, sha: hashlib._Hash | None = None) -> DigestedBytes:
    """The bytes with their digest, taken here unless its state is given; BadMessage unless the header announced it."""
    sha = sha or hashlib.sha256(data)
    if (found := sha.digest()) != header.sha256:
        raise BadMessage("the bytes do not match their announced digest")
    return DigestedBytes(data, sha, found)


def fits_one_message(size: int, cohort: int) -> bool:
    """True if tensors of this size, one for each member, are sent in one message each instead of chunks.

    Fewer calls and messages make an exchange much cheaper, but a single message is in memory as a whole.
    """
    return size <= CHUNK_BYTES or (size <= MESSAGE_BYTES and size * cohort <= AT_ONCE_BYTES)


class TensorFacts(Protocol):
    """What is announced of a tensor: in a message of protobuf, or in a plain record that was decoded from one."""

    @property
    def dtype(self) -> int:
        """Its number format."""

    @property
    def rows(self) -> int:
        """Its rows."""

    @property
    def columns(self) -> int:
        """Its columns."""

    @property
    def scalars(self) -> int:
        """How many scalars follow the tensor."""

    @property
    def sha256(self) -> bytes:
        """The digest of its bytes."""


_WHOLE_HEADER, _WHOLE_DATA = (
    bytes([number << 3 | 2])
    for number in (rounds.WholeUpdate.HEADER_FIELD_NUMBER, rounds.WholeUpdate.DATA_FIELD_NUMBER)
)
"""The tags of the fields of a whole update."""
# The chunk has the same number in a part of a tensor, of an update and of a sum.
_CHUNK = bytes([pb.TensorPart.CHUNK_FIELD_NUMBER << 3 | 2])
_OFFSET, _DATA = bytes([pb.Chunk.OFFSET_FIELD_NUMBER << 3]), bytes([pb.Chunk.DATA_FIELD_NUMBER << 3 | 2])

_NUMPY: dict[int, np.dtype[Any]] = {
    pb.DTYPE_FLOAT64: np.dtype("<f8"),
    pb.DTYPE_UINT64: np.dtype("<u8"),
    pb.DTYPE_UINT32: np.dtype("<u4"),
}


def size_of(header: TensorFacts) -> int:
    """Bytes of the announced vector."""
    if header.dtype not in _NUMPY:
        raise BadMessage(f"the tensor is announced as {_name(header.dtype)}, which is not a number format")
    return (header.rows * header.columns + header.scalars) * _NUMPY[header.dtype].itemsize


def header_of(payload: Buffer, layout: Layout, dtype: pb.Dtype) -> pb.TensorHeader:
    """The header that announces these bytes."""
    return header_with(hashlib.sha256(payload).digest(), layout, dtype)


def header_with(sha256: bytes, layout: Layout, dtype: pb.Dtype) -> pb.TensorHeader:
    """The header that announces bytes of this digest."""
    rows, columns, scalars = layout.rows, layout.columns, layout.scalars
    return pb.TensorHeader(dtype=dtype, rows=rows, columns=columns, scalars=scalars, sha256=sha256)


def check_header(header: TensorFacts, layout: Layout, dtype: pb.Dtype) -> int:
    """The size in bytes of what the header announces; BadMessage unless that is exactly what the spec implies. Done
    before any byte is kept."""
    announced = (header.rows, header.columns, header.scalars)
    expected = (layout.rows, layout.columns, layout.scalars)
    if announced != expected:
        raise BadMessage(
            f"the tensor is announced as {announced[0]} × {announced[1]} with {announced[2]} scalars, "
            f"but this round's spec says {expected[0]} × {expected[1]} with {expected[2]}"
        )
    if header.dtype != dtype:
        raise BadMessage(f"the tensor is announced as {_name(header.dtype)}, but the spec says {_name(dtype)}")
    if len(header.sha256) != hashlib.sha256().digest_size:
        raise BadMessage("the tensor's digest is not a SHA-256")
    return layout.size * _NUMPY[dtype].itemsize


def whole_update(header: rounds.UpdateHeader, payload: Buffer) -> bytes:
    """A `WholeUpdate`, encoded. Its last field is appended to the others, which saves two copies of the tensor."""
    head = rounds.WholeUpdate(header=header).SerializeToString()
    return b"".join((head, _WHOLE_DATA, varint(len(payload)), payload))


class WholeUpdate(NamedTuple):
    """A `WholeUpdate`, decoded; `data` is a view of the message itself."""

    header: rounds.UpdateHeader
    data: Buffer


def read_whole_update(body: bytes) -> WholeUpdate:
    """Decode a `WholeUpdate`. One in the form of `whole_update` is not copied, as protobuf would do twice."""
    start, size = field_at(body, 0, _WHOLE_HEADER)
    data, length = field_at(body, start + size, _WHOLE_DATA) if size else (0, 0)
    if not length or data + length != len(body):
        parsed = rounds.WholeUpdate.FromString(body)
        return WholeUpdate(parsed.header, parsed.data)
    return WholeUpdate(rounds.UpdateHeader.FromString(body[start : start + size]), memoryview(body)[data:])


def field_at(body: bytes, place: int, tag: bytes) -> tuple[int, int]:
    """Where the field at this place goes on after its number, and that number: a value, or the length of its content.

    0 and 0 if it is another field, is cut off, or has a number of more than 63 bits.
    """
    number = 0
    for index, byte in enumerate(body[place + 1 : place + 10] if body[place : place + 1] == tag else b""):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return place + 2 + index, number
    return 0, 0


def varint(number: int) -> bytes:
    """As protobuf writes lengths: seven bits a byte, the lowest first."""
    groups = [number >> shift & 0x7F for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])


class ChunkView(NamedTuple):
    """A `Chunk`, decoded; `data` is a view of the message itself."""

    offset: int
    data: Buffer


def encoded_chunks(payload: Buffer, offset: int = 0) -> Iterator[bytes]:
    """The bytes from `offset` on as parts of a tensor, an update or a sum, each with a chunk of at most 1 MiB."""
    view = memoryview(payload)
    for start in range(offset, len(view), CHUNK_BYTES):
        data = view[start : start + CHUNK_BYTES]
        head = pb.Chunk(offset=start).SerializeToString() + _DATA + varint(len(data))
        yield b"".join((_CHUNK, varint(len(head) + len(data)), head, data))


def read_tensor_part(body: bytes) -> pb.TensorPart | ChunkView:
    """Decode a `TensorPart`; a chunk in the form of `encoded_chunks` is not copied."""
    return _chunk_in(body) or pb.TensorPart.FromString(body)


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
        start, offset = field_at(body, start, _OFFSET)
    data, length = field_at(body, start, _DATA) if start else (0, 0)
    return ChunkView(offset, memoryview(body)[data:]) if length and data + length == len(body) else None


class Assembly:
    """Collects the chunks of one announced vector; refuses gaps, overlaps, surplus and a wrong digest."""

    def __init__(self, header: TensorFacts) -> None:
        self._header = header
        self._size = size_of(header)
        self._data = bytearray()
        self._sha = hashlib.sha256()

    @property
    def received(self) -> int:
        """Bytes taken so far."""
        return len(self._data)

    def add(self, chunk: pb.Chunk | ChunkView) -> None:
        """Take the next chunk."""
        if chunk.offset != len(self._data):
            raise BadMessage(f"a chunk at byte {chunk.offset} came where byte {len(self._data)} was due")
        data = chunk.data
        if len(self._data) + len(data) > self._size:
            raise BadMessage(f"more than the announced {self._size} bytes came")
        self._data += data
        self._sha.update(data)

    def finish(self) -> DigestedBytes:
        """All bytes, once complete and matching the digest."""
        if len(self._data) != self._size:
            raise BadMessage(f"{len(self._data)} of {self._size} announced bytes came")
        return verified(self._header, self._data, self._sha)


def to_array(header: pb.TensorHeader, payload: Buffer) -> NDArray[np.generic]:
    """The vector as a read-only array over the same memory."""
    array: NDArray[np.generic] = np.frombuffer(payload, dtype=_NUMPY[header.dtype])
    array.flags.writeable = False
    return array


def message_bytes(message: TensorMessage) -> bytes:
    """The tensor in row-major order, then the scalars, as little-endian doubles; copied once."""
    return b"".join(np.ascontiguousarray(part, "<f8").data for part in (message.tensor, message.scalars))


def message_from(layout: Layout, payload: Buffer) -> TensorMessage:
    """The tensor message in these bytes; raises BadMessage on a wrong size and on numbers that are not finite."""
    if len(payload) != layout.size * 8:
        raise BadMessage(f"a tensor of {layout.size} numbers cannot be read from {len(payload)} bytes")
    vector: FloatArray = np.frombuffer(payload, dtype="<f8").astype(np.float64, copy=False)
    if not np.isfinite(vector).all():
        raise BadMessage("the tensor holds NaN or infinite numbers")
    return TensorMessage.unflatten(layout, vector)


def _name(dtype: int) -> str:
    known = {value: name for name, value in pb.Dtype.items()}
    return known[dtype].removeprefix("DTYPE_").lower() if dtype in known else f"type {dtype}"

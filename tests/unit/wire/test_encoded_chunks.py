"""Chunks that are encoded and read by hand are those that protobuf would write and read."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from dcfpca.v1 import rounds_pb2, types_pb2
from dcfpca.wire.constants import CHUNK_BYTES
from dcfpca.wire.tensors import ChunkView, encoded_chunks, read_tensor_part, read_update_part
from tests.support.inputs.chunks import chunks

PAYLOAD = bytes(range(256)) * (2 * CHUNK_BYTES // 256) + b"the rest"


@pytest.mark.parametrize("offset", [0, 1, 200, CHUNK_BYTES, len(PAYLOAD) - 1, len(PAYLOAD)])
def test_chunks_are_the_messages_that_protobuf_would_write(offset: int) -> None:
    encoded = list(encoded_chunks(PAYLOAD, offset))
    plain = list(chunks(PAYLOAD, offset))
    assert encoded == [types_pb2.TensorPart(chunk=chunk).SerializeToString() for chunk in plain]
    assert encoded == [rounds_pb2.UpdatePart(chunk=chunk).SerializeToString() for chunk in plain]


@pytest.mark.parametrize("offset", [0, 200, CHUNK_BYTES])
def test_chunks_are_read_without_a_copy(offset: int) -> None:
    for body, chunk in zip(encoded_chunks(PAYLOAD, offset), chunks(PAYLOAD, offset), strict=True):
        for read in (read_tensor_part(body), read_update_part(body)):
            assert isinstance(read, ChunkView)
            assert isinstance(read.data, memoryview)
            assert read.data.obj is body
            assert (read.offset, bytes(read.data)) == (chunk.offset, chunk.data)


def test_a_header_is_no_chunk() -> None:
    part = rounds_pb2.UpdatePart(header=rounds_pb2.UpdateHeader(ticket=b"t"))
    assert read_update_part(part.SerializeToString()) == part


@given(st.data())
def test_any_other_form_has_the_meaning_that_protobuf_gives_it(data: st.DataObject) -> None:
    size, offset = data.draw(st.integers(0, 300)), data.draw(st.sampled_from([0, 7, 1 << 40, (1 << 64) - 1]))
    part = types_pb2.TensorPart(chunk=types_pb2.Chunk(offset=offset, data=bytes(size)))
    body = bytearray(part.SerializeToString())
    for _ in range(data.draw(st.integers(0, 3))):
        match data.draw(st.sampled_from(["change", "cut", "append"])):
            case "change" if body:
                body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
            case "cut":
                del body[data.draw(st.integers(0, len(body))) :]
            case _:
                body += data.draw(st.binary(max_size=8))
    try:
        expected = types_pb2.TensorPart.FromString(bytes(body))
    except DecodeError:
        with pytest.raises(DecodeError):
            read_tensor_part(bytes(body))
        return
    read = read_tensor_part(bytes(body))
    if isinstance(read, ChunkView):
        assert (read.offset, bytes(read.data)) == (expected.chunk.offset, expected.chunk.data)
        assert expected.WhichOneof("part") == "chunk"
    else:
        assert read == expected

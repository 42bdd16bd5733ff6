import hashlib

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from dcfpca.errors import BadMessage
from dcfpca.rpca.method import Layout, TensorMessage
from dcfpca.v1 import rounds_pb2
from dcfpca.v1 import types_pb2 as pb
from dcfpca.wire import tensors
from dcfpca.wire.constants import CHUNK_BYTES
from tests.support.inputs.chunks import chunks

F64 = pb.DTYPE_FLOAT64
LAYOUT = Layout(3, 2, 2)


def message(layout: Layout = LAYOUT) -> TensorMessage:
    return TensorMessage.unflatten(layout, np.random.default_rng(1).standard_normal(layout.size))


def assembled(payload: bytes, layout: Layout = LAYOUT) -> tensors.Buffer:
    assembly = tensors.Assembly(tensors.header_of(payload, layout, F64))
    for chunk in chunks(payload):
        assembly.add(chunk)
    return assembly.finish().data


@given(st.integers(0, 40), st.integers(0, 5), st.integers(0, 4))
def test_a_message_survives_the_wire_bit_by_bit(rows: int, columns: int, scalars: int) -> None:
    layout = Layout(rows, columns, scalars)
    sent = message(layout)
    received = tensors.message_from(layout, assembled(tensors.message_bytes(sent), layout))
    np.testing.assert_array_equal(received.tensor, sent.tensor)
    np.testing.assert_array_equal(received.scalars, sent.scalars)


def test_numbers_are_little_endian_whatever_the_machine() -> None:
    sent = TensorMessage(np.array([[1.0]], dtype=">f8"), np.zeros(0))
    assert tensors.message_bytes(sent) == bytes.fromhex("000000000000f03f")


def test_a_tensor_that_is_not_contiguous_is_sent_in_row_major_order() -> None:
    tensor = np.arange(6.0).reshape(2, 3).T
    sent = TensorMessage(tensor, np.zeros(0))
    np.testing.assert_array_equal(np.frombuffer(tensors.message_bytes(sent)), tensor.ravel(order="C"))


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES + 7])
def test_chunks_cover_everything_once_and_none_is_larger_than_allowed(size: int) -> None:
    payload = np.random.default_rng(size).bytes(size)
    pieces = list(chunks(payload))
    assert b"".join(piece.data for piece in pieces) == payload
    assert [piece.offset for piece in pieces] == list(range(0, size, CHUNK_BYTES))
    assert all(0 < len(piece.data) <= CHUNK_BYTES for piece in pieces)


@given(st.integers(0, 3000))
def test_chunks_from_an_offset_are_the_rest(offset: int) -> None:
    payload = bytes(range(256)) * 10
    assert b"".join(piece.data for piece in chunks(payload, offset)) == payload[offset:]


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 4},
        {"columns": 3},
        {"scalars": 1},
        {"rows": 2, "columns": 3},
        {"rows": 2**63, "columns": 2**63},
        {"dtype": pb.DTYPE_UINT64},
        {"dtype": pb.DTYPE_UNSPECIFIED},
        {"dtype": 77},
        {"sha256": b"short"},
        {"sha256": b""},
    ],
)
def test_a_header_that_is_not_what_the_spec_says_is_turned_away(change: dict[str, object]) -> None:
    header = tensors.header_of(tensors.message_bytes(message()), LAYOUT, F64)
    tensors.check_header(header, LAYOUT, F64)
    for name, value in change.items():
        setattr(header, name, value)
    with pytest.raises(BadMessage):
        tensors.check_header(header, LAYOUT, F64)


@pytest.mark.parametrize("dtype", [pb.DTYPE_UNSPECIFIED, 77])
def test_no_assembly_begins_for_an_unknown_number_format(dtype: int) -> None:
    header = tensors.header_of(b"", LAYOUT, F64)
    header.dtype = dtype  # type: ignore[assignment]
    with pytest.raises(BadMessage, match="not a number format"):
        tensors.Assembly(header)


def test_gaps_overlaps_and_surplus_are_refused_and_change_nothing() -> None:
    payload = tensors.message_bytes(message())
    assembly = tensors.Assembly(tensors.header_of(payload, LAYOUT, F64))
    assembly.add(pb.Chunk(offset=0, data=payload[:10]))
    for wrong in (
        pb.Chunk(offset=11, data=payload[11:]),
        pb.Chunk(offset=9, data=payload[9:]),
        pb.Chunk(offset=0, data=payload[:10]),
        pb.Chunk(offset=10, data=payload[10:] + b"x"),
    ):
        with pytest.raises(BadMessage):
            assembly.add(wrong)
        assert assembly.received == 10
    assembly.add(pb.Chunk(offset=10, data=payload[10:]))
    assert assembly.finish().data == payload


def test_an_incomplete_vector_is_not_handed_out() -> None:
    payload = tensors.message_bytes(message())
    assembly = tensors.Assembly(tensors.header_of(payload, LAYOUT, F64))
    assembly.add(pb.Chunk(offset=0, data=payload[:-1]))
    with pytest.raises(BadMessage, match=f"{len(payload) - 1} of {len(payload)}"):
        assembly.finish()


@given(st.integers(0, 8 * LAYOUT.size - 1), st.integers(0, 7))
def test_any_flipped_bit_is_noticed(place: int, bit: int) -> None:
    payload = bytearray(tensors.message_bytes(message()))
    header = tensors.header_of(payload, LAYOUT, F64)
    payload[place] ^= 1 << bit
    assembly = tensors.Assembly(header)
    assembly.add(pb.Chunk(offset=0, data=bytes(payload)))
    with pytest.raises(BadMessage, match="digest"):
        assembly.finish()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 5, 6, 7])
def test_numbers_that_are_not_finite_are_refused(bad: float, place: int) -> None:
    vector = message().flat()
    vector[place] = bad
    with pytest.raises(BadMessage, match="NaN or infinite"):
        tensors.message_from(LAYOUT, vector.tobytes())


@pytest.mark.parametrize("size", [0, 1, 8, LAYOUT.size * 8 - 8, LAYOUT.size * 8 - 1, LAYOUT.size * 8 + 8])
def test_a_message_of_the_wrong_size_is_refused(size: int) -> None:
    with pytest.raises(BadMessage, match="cannot be read"):
        tensors.message_from(LAYOUT, bytes(size))


@pytest.mark.parametrize(("dtype", "kind"), [(F64, "<f8"), (pb.DTYPE_UINT64, "<u8"), (pb.DTYPE_UINT32, "<u4")])
def test_an_array_shares_the_bytes_and_cannot_be_written(dtype: pb.Dtype, kind: str) -> None:
    payload = bytearray(np.arange(LAYOUT.size, dtype=kind).tobytes())
    header = tensors.header_of(payload, LAYOUT, dtype)
    assert tensors.size_of(header) == len(payload)
    array = tensors.to_array(header, payload)
    assert array.dtype == np.dtype(kind)
    assert np.shares_memory(array, np.frombuffer(payload, dtype=np.uint8))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_the_digest_is_plain_sha_256_of_the_bytes() -> None:
    assert tensors.header_of(b"abc", LAYOUT, F64).sha256 == hashlib.sha256(b"abc").digest()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_384, 1 << 20])
def test_a_whole_update_is_the_message_that_protobuf_would_write(size: int) -> None:
    payload = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    header = rounds_pb2.UpdateHeader(ref=pb.RoundRef(run_id="r", round=3, attempt=2), ticket=b"t")
    read = rounds_pb2.WholeUpdate.FromString(tensors.whole_update(header, payload))
    assert read == rounds_pb2.WholeUpdate(header=header, data=payload)


@given(st.binary(max_size=400), st.text(max_size=10), st.binary(max_size=40))
def test_a_whole_update_is_read_as_protobuf_reads_it(payload: bytes, run: str, ticket: bytes) -> None:
    header = rounds_pb2.UpdateHeader(ref=pb.RoundRef(run_id=run, round=3), ticket=ticket)
    read = tensors.read_whole_update(tensors.whole_update(header, payload))
    assert (read.header, bytes(read.data)) == (header, payload)


def test_a_whole_update_is_read_without_a_copy() -> None:
    body = tensors.whole_update(rounds_pb2.UpdateHeader(ticket=b"t"), bytes(1 << 20))
    data = tensors.read_whole_update(body).data
    assert isinstance(data, memoryview)
    assert data.obj is body


@given(st.data())
def test_any_other_form_of_a_whole_update_has_the_meaning_that_protobuf_gives_it(data: st.DataObject) -> None:
    header = rounds_pb2.UpdateHeader(ref=pb.RoundRef(run_id="r", round=3), ticket=b"t")
    whole = bytearray(tensors.whole_update(header, bytes(range(200))))
    for _ in range(data.draw(st.integers(1, 3))):
        match data.draw(st.sampled_from(["change", "cut", "append"])):
            case "change" if whole:
                whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
            case "cut":
                del whole[data.draw(st.integers(0, len(whole))) :]
            case _:
                whole += data.draw(st.binary(max_size=8))
    try:
        expected = rounds_pb2.WholeUpdate.FromString(bytes(whole))
    except DecodeError:
        with pytest.raises(DecodeError):
            tensors.read_whole_update(bytes(whole))
        return
    read = tensors.read_whole_update(bytes(whole))
    assert (read.header, bytes(read.data)) == (expected.header, expected.data)

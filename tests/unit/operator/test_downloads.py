"""Downloads against an aggregator that lies: nothing wrong is ever written where it could be believed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from dcfpca.errors import BadInput, BadMessage, DcfpcaError
from dcfpca.identity import Identity, Role
from dcfpca.operator.client import Operator
from dcfpca.operator.downloads import fetch_model, fetch_reconstruction, staged
from dcfpca.rpca.method import Layout
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.v1 import types_pb2
from dcfpca.v1.admin_pb2_grpc import AdminServiceServicer, add_AdminServiceServicer_to_server
from dcfpca.wire import tensors
from dcfpca.wire.addresses import Address
from dcfpca.wire.constants import CHUNK_BYTES
from tests.support.inputs.chunks import chunks

CONTENT = np.random.default_rng(1).bytes(2 * CHUNK_BYTES + 5)
Chunks = Callable[[int], Iterator[types_pb2.Chunk]]


class Aggregator(AdminServiceServicer):
    """Says what it is told to say."""

    def __init__(self, chunks: Chunks, parts: list[types_pb2.TensorPart]) -> None:
        self._chunks = chunks
        self._parts = parts
        self.asked: list[int] = []

    def FetchReconstruction(  # noqa: N802
        self, request: pb.FetchReconstructionRequest, context: grpc.ServicerContext
    ) -> Iterator[types_pb2.Chunk]:
        self.asked.append(request.offset)
        if len(self.asked) == 1 and request.artifact == "L.npy":
            yield from list(self._chunks(request.offset))[:1]
            context.abort(grpc.StatusCode.UNAVAILABLE, "restarting")
        yield from self._chunks(request.offset)

    def FetchModel(  # noqa: N802
        self, request: pb.FetchModelRequest, context: grpc.ServicerContext
    ) -> Iterator[types_pb2.TensorPart]:
        yield from self._parts


def honest(offset: int) -> Iterator[types_pb2.Chunk]:
    return chunks(CONTENT, offset)


@contextmanager
def served(aggregator: Aggregator) -> Iterator[Operator]:
    server = grpc.server(ThreadPoolExecutor(2))
    add_AdminServiceServicer_to_server(aggregator, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Operator(channel, Address("127.0.0.1", port), Identity("acme", Role.OPERATOR, "op"))
    server.stop(None).wait()


def told(participant: str = "site-a", artifact: str = "S.npz", content: bytes = CONTENT) -> pb.ExportedFile:
    digest = hashlib.sha256(content).digest()
    return pb.ExportedFile(participant=participant, artifact=artifact, size=len(content), sha256=digest)


def test_a_broken_download_goes_on_where_it_broke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcfpca.operator.downloads._PAUSE_SECONDS", 0.0)
    aggregator = Aggregator(honest, [])
    with served(aggregator) as operator:
        saved = fetch_reconstruction(operator, "r", told(artifact="L.npy"), tmp_path)
    assert aggregator.asked == [0, CHUNK_BYTES]
    assert (tmp_path / "site-a" / "L.npy").read_bytes() == CONTENT
    assert saved.sha256 == hashlib.sha256(CONTENT).hexdigest()


@pytest.mark.parametrize(
    "chunks",
    [
        lambda offset: chunks(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])),
        lambda offset: chunks(CONTENT[:-1]),
        lambda offset: chunks(CONTENT + b"more"),
        lambda offset: chunks(CONTENT, 1),
        lambda offset: iter(()),
    ],
    ids=["flipped bit", "too short", "too long", "gap", "nothing"],
)
def test_bytes_that_were_not_announced_are_refused(tmp_path: Path, chunks: Chunks) -> None:
    with served(Aggregator(chunks, [])) as operator, pytest.raises(BadMessage):
        fetch_reconstruction(operator, "r", told(), tmp_path)


@pytest.mark.parametrize(
    "file",
    [
        told(participant="../../etc"),
        told(participant="/etc"),
        told(participant=".."),
        told(participant=""),
        told(artifact="../L.npy"),
        told(artifact="evil.sh"),
        told(artifact=""),
    ],
    ids=lambda file: f"{file.participant}|{file.artifact}",
)
def test_names_from_the_network_never_leave_the_directory(tmp_path: Path, file: pb.ExportedFile) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    with served(Aggregator(honest, [])) as operator, pytest.raises(DcfpcaError):
        fetch_reconstruction(operator, "r", file, inside)
    assert list(tmp_path.rglob("*")) == [inside]


def model_parts(vector: np.ndarray, layout: Layout) -> list[types_pb2.TensorPart]:
    payload = vector.tobytes()
    header = tensors.header_of(payload, layout, types_pb2.DTYPE_FLOAT64)
    return [
        types_pb2.TensorPart(header=header),
        *(types_pb2.TensorPart(chunk=chunk) for chunk in chunks(payload)),
    ]


def test_the_model_is_written_as_u_and_singular_values(tmp_path: Path) -> None:
    vector = np.random.default_rng(2).standard_normal(7 * 3 + 3)
    with served(Aggregator(honest, model_parts(vector, Layout(7, 3, 3)))) as operator:
        saved = fetch_model(operator, "r", tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "U.npy"), vector[:21].reshape(7, 3))
    np.testing.assert_array_equal(np.load(tmp_path / "singular_values.npy"), vector[21:])
    for file in saved:
        assert hashlib.sha256((tmp_path / file.name).read_bytes()).hexdigest() == file.sha256


def damaged(change: str) -> list[types_pb2.TensorPart]:
    parts = model_parts(np.ones(7 * 3 + 3), Layout(7, 3, 3))
    match change:
        case "no header":
            return parts[1:]
        case "nothing":
            return []
        case "unknown format":
            parts[0].header.dtype = 9  # type: ignore[assignment]
        case "masked format":
            parts[0].header.dtype = types_pb2.DTYPE_UINT64
        case "digest":
            parts[0].header.sha256 = bytes(32)
        case "larger":
            parts[0].header.rows = 2**40
    return parts


@pytest.mark.parametrize("change", ["no header", "nothing", "unknown format", "masked format", "digest", "larger"])
def test_a_model_that_is_not_as_announced_is_refused(tmp_path: Path, change: str) -> None:
    with served(Aggregator(honest, damaged(change))) as operator, pytest.raises(BadMessage):
        fetch_model(operator, "r", tmp_path)


def test_a_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"

    def fail() -> None:
        with staged(out) as work:
            (work / "U.npy").write_bytes(b"x")
            assert not out.exists()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list((tmp_path / "deep").iterdir()) == []
    with staged(out) as work:
        (work / "U.npy").write_bytes(b"x")
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"]
    assert (out / "U.npy").read_bytes() == b"x"


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "full"):
        with pytest.raises(BadInput, match="not an empty directory"), staged(out):
            pass
    (tmp_path / "empty").mkdir()
    with staged(tmp_path / "empty") as work:
        (work / "x").touch()
    assert (tmp_path / "empty" / "x").exists()

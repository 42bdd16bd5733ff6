"""Messages that an authenticated but hostile participant might send: every one has something wrong with it."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dcfpca.v1 import admin_pb2
from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from participant.link import Link
from participant.link.calls import METHODS as CALLS
from tests.support.inputs.chunks import chunks

METHODS: tuple[MethodDescriptor, ...] = tuple(pb.DESCRIPTOR.services_by_name["RoundService"].methods)
OPERATORS: tuple[MethodDescriptor, ...] = tuple(admin_pb2.DESCRIPTOR.services_by_name["AdminService"].methods)
_EXTREMES = (0, 1, 2, 3, 255, 2**31 - 1, 2**32 - 1, 2**53, 2**63 - 1)


@dataclass(frozen=True)
class Case:
    """One call: which method, and the raw messages to send."""

    method: MethodDescriptor
    messages: tuple[bytes, ...]
    what: str


@dataclass(frozen=True)
class Scene:
    """What the hostile one knows of the run it attacks."""

    run_id: str
    round: int
    attempt: int
    rows: int
    columns: int
    scalars: int
    name: str
    dtype: int = types.DTYPE_FLOAT64
    other_run: str = "another"


class Tape:
    """What the honest ones said lately, as somebody who listens in would replay it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._said: deque[tuple[types.RoundRef | None, Case]] = deque(maxlen=200)
        self._listen(patch)

    def hear(self, name: str, request: Any, *parts: Message) -> None:
        """Remember a call."""
        method = next(method for method in METHODS if method.name == name)
        ref = request.ref if hasattr(request, "ref") else None
        messages = tuple(part.SerializeToString() for part in parts or (request,))
        self._said.append((ref, Case(method, messages, "replay")))

    def replay(self, draw: random.Random, scene: Scene) -> Case | None:
        """Something of theirs. Not an update of the open attempt: in a plain sum anybody may send any numbers."""
        here = types.RoundRef(run_id=scene.run_id, round=scene.round, attempt=scene.attempt)
        heard = [one for ref, one in self._said if ref != here or one.method.name != "SubmitUpdate"]
        return draw.choice(heard) if heard else None

    def _listen(self, patch: pytest.MonkeyPatch) -> None:
        """Record what daemons of this process send from now on, as they send it."""
        send, upload = Link.send, Link.upload

        async def heard_send(link: Link, request: Any) -> Any:
            self.hear(CALLS[type(request)], request)
            return await send(link, request)

        async def heard_upload(link: Link, header: pb.UpdateHeader, payload: bytes, cohort: int) -> Any:
            pieces = [pb.UpdatePart(chunk=chunk) for chunk in chunks(payload)]
            self.hear("SubmitUpdate", header, pb.UpdatePart(header=header), *pieces)
            return await upload(link, header, payload, cohort)

        patch.setattr(Link, "send", heard_send)
        patch.setattr(Link, "upload", heard_upload)


def case(draw: random.Random, scene: Scene, tape: Tape | None = None) -> Case:
    """A call with something wrong in it."""
    chance = draw.random()
    if tape and chance < 0.1 and (again := tape.replay(draw, scene)):
        return again
    if chance < 0.5:
        return _upload(draw, scene)
    method = draw.choice(METHODS if chance < 0.95 else OPERATORS)
    message = noise(draw, GetMessageClass(method.input_type), scene)
    count = draw.choice((1, 1, 2, 5)) if method.client_streaming else 1
    body = [message.SerializeToString() for _ in range(count)]
    if draw.random() < 0.3:
        return Case(method, tuple(flipped(draw, one) for one in body), "bits flipped")
    return Case(method, tuple(body), "noise")


def noise(draw: random.Random, kind: type[Message], scene: Scene, depth: int = 0) -> Message:
    """A message of this kind with every field set to something odd."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if draw.random() < 0.15:
            continue
        if field.is_repeated:
            values = [_value(draw, field, scene, depth) for _ in range(draw.choice((0, 1, 3)))]
            getattr(message, field.name).extend(values)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            getattr(message, field.name).CopyFrom(_value(draw, field, scene, depth))
        else:
            setattr(message, field.name, _value(draw, field, scene, depth))
    return message


def _value(draw: random.Random, field: Any, scene: Scene, depth: int) -> Any:
    known = {"run_id": scene.run_id, "round": scene.round, "attempt": scene.attempt, "participant": scene.name}
    known |= {"sender": scene.name, "protocol": 99}
    if field.name in known and (field.name == "protocol" or draw.random() < 0.7):
        return known[field.name]
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
            return draw.randbytes(draw.choice((0, 1, 16, 31, 32, 33, 70, 104, 5000)))
        case FieldDescriptor.CPPTYPE_STRING:
            odd = ("", "ann", "../../etc/passwd", "\x00", "a" * 5000, "é" * 40, "' OR 1=1 --", scene.other_run)
            return draw.choice(odd)
        case FieldDescriptor.CPPTYPE_BOOL:
            return draw.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return draw.choice((0, 1, 2, 3, 7, 2**31 - 1))
        case FieldDescriptor.CPPTYPE_MESSAGE:
            return noise(draw, GetMessageClass(field.message_type), scene, depth + 1)
        case FieldDescriptor.CPPTYPE_INT32:
            return draw.choice((*_EXTREMES[:6], -1, -(2**31)))
        case FieldDescriptor.CPPTYPE_UINT32:
            return draw.choice(_EXTREMES[:7])
        case FieldDescriptor.CPPTYPE_INT64:
            return draw.choice((*_EXTREMES, -1, -(2**63)))
        case _:
            return draw.choice((*_EXTREMES, 2**64 - 1))


def flipped(draw: random.Random, body: bytes) -> bytes:
    """The same bytes with a few bits wrong, or cut off."""
    wrong = bytearray(body or b"\x00")
    for _ in range(draw.choice((1, 2, 8))):
        wrong[draw.randrange(len(wrong))] ^= 1 << draw.randrange(8)
    return bytes(wrong[: draw.randrange(len(wrong) + 1)] if draw.random() < 0.3 else wrong)


def _upload(draw: random.Random, scene: Scene) -> Case:
    """An upload with one thing wrong; everything else about it is as it should be."""
    method = next(method for method in METHODS if method.name == "SubmitUpdate")
    what = draw.choice(tuple(_WRONG))
    return Case(method, tuple(part.SerializeToString() for part in _WRONG[what](draw, scene)), what)


def _right(draw: random.Random, scene: Scene) -> tuple[pb.UpdateHeader, bytes]:
    size = scene.rows * scene.columns + scene.scalars
    payload = np.array([draw.gauss(0, 1) for _ in range(size)]).tobytes()
    tensor = types.TensorHeader(
        dtype=scene.dtype,  # type: ignore[arg-type]
        rows=scene.rows,
        columns=scene.columns,
        scalars=scene.scalars,
        sha256=hashlib.sha256(payload).digest(),
    )
    ref = types.RoundRef(run_id=scene.run_id, round=scene.round, attempt=scene.attempt)
    return pb.UpdateHeader(ref=ref, tensor=tensor), payload


def _parts(header: pb.UpdateHeader, *pieces: tuple[int, bytes]) -> Iterator[pb.UpdatePart]:
    yield pb.UpdatePart(header=header)
    for offset, data in pieces:
        yield pb.UpdatePart(chunk=types.Chunk(offset=offset, data=data))


def _shape(draw: random.Random, scene: Scene) -> Iterator[pb.UpdatePart]:
    header, payload = _right(draw, scene)
    name = draw.choice(("rows", "columns", "scalars"))
    setattr(header.tensor, name, draw.choice((getattr(header.tensor, name) + 1, 0xFFFFFFFF)))
    return _parts(header, (0, payload))


def _dtype(draw: random.Random, scene: Scene) -> Iterator[pb.UpdatePart]:
    header, payload = _right(draw, scene)
    wrong = {0, 1, 2, 3, 9} - {scene.dtype}
    header.tensor.dtype = draw.choice(sorted(wrong))  # type: ignore[assignment]
    return _parts(header, (0, payload))


def _not_finite(draw: random.Random, scene: Scene) -> Iterator[pb.UpdatePart]:
    header, payload = _right(draw, scene)
    values = np.frombuffer(payload).copy()
    values[draw.randrange(len(values))] = draw.choice((np.nan, np.inf, -np.inf))
    header.tensor.sha256 = hashlib.sha256(values.tobytes()).digest()
    return _parts(header, (0, values.tobytes()))


def _digest(draw: random.Random, scene: Scene) -> Iterator[pb.UpdatePart]:
    header, payload = _right(draw, scene)
    header.tensor.sha256 = draw.randbytes(draw.choice((0, 31, 32, 32, 32, 33)))
    return _parts(header, (0, payload))


def _length(draw: random.Random, scene: Scene) -> Iterator[pb.UpdatePart]:
    header, payload = _right(draw, scene)
    wrong = draw.choice((payload[:-8], payload[:-4], payload[:-1], b"", payload + bytes(8), payload * 3))
    return _parts(header, (0, wrong))


def _pieces(draw: random.Random, scene: Scene) -> Iterator[pb.UpdatePart]:
    header, payload = _right(draw, scene)
    cut = draw.choice((3, 4, 5, 12))
    wrong = draw.choice(
        (
            [(0, payload[:cut]), (cut, payload[cut:])],
            [(8, payload[8:]), (0, payload[:8])],
            [(0, payload[:8]), (16, payload[16:])],
            [(0, b""), (0, payload)],
            [(2**63, payload)],
            [(0, bytes((1 << 20) + 8))],
        )
    )
    return _parts(header, *wrong)


def _elsewhere(draw: random.Random, scene: Scene) -> Iterator[pb.UpdatePart]:
    header, payload = _right(draw, scene)
    name, value = draw.choice(
        (("round", scene.round + 7), ("attempt", scene.attempt + 5), ("run_id", scene.other_run), ("round", 2**32 - 1))
    )
    setattr(header.ref, name, value)
    return _parts(header, (0, payload))


def _order(draw: random.Random, scene: Scene) -> Iterator[pb.UpdatePart]:
    header, payload = _right(draw, scene)
    chunk = pb.UpdatePart(chunk=types.Chunk(offset=0, data=payload))
    head = pb.UpdatePart(header=header)
    empty = pb.UpdatePart(chunk=types.Chunk())
    wrong: tuple[list[pb.UpdatePart], ...] = (
        [chunk, head],
        [head] * 3,
        [pb.UpdatePart()],
        [],
        [head, pb.UpdatePart(), chunk],
        [head, *[empty] * 200],
    )
    return iter(draw.choice(wrong))


_WRONG = {
    "shape": _shape,
    "dtype": _dtype,
    "not finite": _not_finite,
    "digest": _digest,
    "length": _length,
    "pieces": _pieces,
    "elsewhere": _elsewhere,
    "order": _order,
}

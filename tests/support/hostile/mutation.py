"""Messages that participants really sent, and the same with something changed in them."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.wire.tensors import Buffer
from participant.link import Link
from participant.link.calls import METHODS as CALLS
from tests.support.hostile.hostile_messages import METHODS, Case, Scene, flipped, noise

_METHOD_OF = {method.name: method for method in METHODS}
_MOST_KEPT = 400


class SaidMessages:
    """What daemons of this process said, kept once the aggregator has answered it.

    Updates of an attempt are kept once `hostile` has delivered its own: before that, any numbers in its name are its
    update, and no service could tell.
    """

    def __init__(self, patch: pytest.MonkeyPatch, hostile: str) -> None:
        self._said: dict[str, list[Message]] = defaultdict(list)
        self._early: dict[str, list[Message]] = defaultdict(list)
        self._delivered: set[str] = set()
        send, upload = Link.send, Link.upload

        async def heard_send(link: Link, request: Any) -> Any:
            receipt = await send(link, request)
            self._keep(CALLS[type(request)], request)
            return receipt

        async def heard_upload(link: Link, header: pb.UpdateHeader, payload: Buffer, cohort: int) -> Any:
            try:
                receipt = await upload(link, header, payload, cohort)
            except asyncio.CancelledError:
                keep(link, header, payload)  # the next round is open: the update arrived, its receipt came later
                raise
            keep(link, header, payload)
            return receipt

        def keep(link: Link, header: pb.UpdateHeader, payload: Buffer) -> None:
            if link._credentials.identity.name == hostile:
                self._delivered.add(str(header.ref))
            self._keep_update(str(header.ref), pb.WholeUpdate(header=header, data=bytes(payload)))

        patch.setattr(Link, "send", heard_send)
        patch.setattr(Link, "upload", heard_upload)

    @property
    def calls(self) -> frozenset[str]:
        """The calls of which something was heard."""
        return frozenset(self._said)

    def mutated(self, draw: random.Random, scene: Scene) -> Case | None:
        """One of them, changed; None before anything was said."""
        if not self._said:
            return None
        name = draw.choice(sorted(self._said))
        message = _copy(draw.choice(self._said[name]))
        what, change = draw.choice(_CHANGES)
        change(draw, message, _copy(draw.choice(self._said[name])), scene)
        body = message.SerializeToString()
        return Case(_METHOD_OF[name], (flipped(draw, body) if what == "bits" else body,), what)

    def _keep_update(self, attempt: str, update: pb.WholeUpdate) -> None:
        self._early[attempt].append(update)
        if attempt in self._delivered:
            for one in self._early.pop(attempt):
                self._keep("SubmitWhole", one)

    def _keep(self, name: str, request: Message) -> None:
        kept = self._said[name]
        kept.append(_copy(request))
        del kept[:-_MOST_KEPT]


def _copy(message: Message) -> Message:
    other = type(message)()
    other.CopyFrom(message)
    return other


def _nothing(draw: random.Random, message: Message, other: Message, scene: Scene) -> None:
    """A replay, or bits flipped in it afterwards."""


def _odd_field(draw: random.Random, message: Message, other: Message, scene: Scene) -> None:
    """One field, at any depth, set to something odd."""
    place = _somewhere(draw, message)
    odd = noise(draw, type(place), scene)
    _take_field(draw, place, odd)


def _other_field(draw: random.Random, message: Message, other: Message, scene: Scene) -> None:
    """One field from another message of the same call: of another site, round or run."""
    _take_field(draw, message, other)


def _deep_other_field(draw: random.Random, message: Message, other: Message, scene: Scene) -> None:
    """One field of a part from the same part of another message."""
    names = [field.name for field in _present(message) if _is_single_message(field)]
    if names:
        name = draw.choice(names)
        _take_field(draw, getattr(message, name), getattr(other, name))


def _repeated(draw: random.Random, message: Message, other: Message, scene: Scene) -> None:
    """A list with an entry more, fewer, or in another order."""
    lists = [getattr(message, field.name) for field in _present(message) if field.is_repeated]
    if not lists:
        return
    entries = draw.choice(lists)
    kept = [_copy(entry) if isinstance(entry, Message) else entry for entry in entries]
    draw.shuffle(kept)
    del entries[:]
    entries.extend(draw.choice((kept, kept[1:], kept + kept[:1], kept * 50)))


def _take_field(draw: random.Random, message: Message, source: Message) -> None:
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    field = draw.choice(fields)
    message.ClearField(field.name)
    part = type(message)()
    part.CopyFrom(source)
    for present in _present(source):
        if present.name != field.name:
            part.ClearField(present.name)
    message.MergeFrom(part)


def _somewhere(draw: random.Random, message: Message) -> Message:
    inner = [value for field, value in message.ListFields() if _is_single_message(field)]
    return _somewhere(draw, draw.choice(inner)) if inner and draw.random() < 0.6 else message


def _present(message: Message) -> list[FieldDescriptor]:
    return [field for field, _ in message.ListFields()]


def _is_single_message(field: Any) -> bool:
    return bool(field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_repeated)


Change = Callable[[random.Random, Message, Message, Scene], None]
_CHANGES: tuple[tuple[str, Change], ...] = (
    ("replay", _nothing),
    ("bits", _nothing),
    ("odd field", _odd_field),
    ("odd field", _odd_field),
    ("other field", _other_field),
    ("other field of a part", _deep_other_field),
    ("list", _repeated),
)

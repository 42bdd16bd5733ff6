"""A small update in a small cohort is one message; it is judged as strictly as one that comes in pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from dcfpca.v1 import rounds_pb2 as pb
from dcfpca.v1 import types_pb2 as types
from dcfpca.wire.constants import AT_ONCE_BYTES, CHUNK_BYTES, MESSAGE_BYTES
from dcfpca.wire.tensors import header_of
from tests.integration.aggregator.test_upload_turns import (
    NAMES,
    PATIENCE,
    Bare,
    bare,
    enrol,
    propose,
    ready_to_upload,
    update,
)
from tests.support.inputs.chunks import chunks
from tests.support.services.service import Service, service


class Whole(Bare):
    """An aggregator that drops the first update that comes in one message."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = False

    async def SubmitWhole(self, request: pb.WholeUpdate, context: Any) -> types.Receipt:  # noqa: N802
        if not self.dropped:
            self.dropped = True
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        return types.Receipt(fate=types.FATE_ACCEPTED, reason=f"{len(request.data)} at once")


async def test_a_small_update_is_one_message_and_is_sent_again_when_the_call_breaks(tmp_path: Path) -> None:
    async with bare(tmp_path, Whole()) as link, asyncio.timeout(PATIENCE):
        assert (await link.upload(pb.UpdateHeader(), bytes(100), 64)).reason == "100 at once"


@pytest.mark.parametrize(("size", "cohort"), [(MESSAGE_BYTES + 8, 2), (100, 65)], ids=["too large", "a crowd"])
async def test_a_large_update_and_a_large_cohort_use_the_stream(tmp_path: Path, size: int, cohort: int) -> None:
    async with bare(tmp_path, Whole()) as link, asyncio.timeout(PATIENCE):
        assert (await link.upload(pb.UpdateHeader(), bytes(size), cohort)).reason == str(size)


async def test_a_large_update_whose_call_breaks_goes_on_in_pieces(tmp_path: Path) -> None:
    async with bare(tmp_path, Whole()) as link, asyncio.timeout(PATIENCE):
        size = CHUNK_BYTES + 8
        assert (await link.upload(pb.UpdateHeader(), bytes(size), 3)).reason == str(size)
        assert (await link.upload(pb.UpdateHeader(), bytes(size), 3)).reason == f"{size} at once"


async def test_updates_that_would_fill_the_memory_together_come_in_pieces(tmp_path: Path) -> None:
    aggregator = Whole()
    aggregator.dropped = True
    async with bare(tmp_path, aggregator) as link, asyncio.timeout(PATIENCE):
        size, most = 2 * CHUNK_BYTES, AT_ONCE_BYTES // (2 * CHUNK_BYTES)
        assert (await link.upload(pb.UpdateHeader(), bytes(size), most)).reason == f"{size} at once"
        assert (await link.upload(pb.UpdateHeader(), bytes(size), most + 1)).reason == str(size)


async def opened(aggregator: Service) -> tuple[str, Any, pb.UpdateHeader, bytes]:
    """A run with its first round open, a participant of it, and that one's update."""
    run_id = await propose(aggregator, participants=NAMES, rounds=1)
    stubs = [await enrol(aggregator, run_id, name) for name in NAMES]
    return run_id, stubs[0], *update(aggregator, run_id)


async def test_a_repeat_is_a_duplicate_and_another_update_is_rejected(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator, asyncio.timeout(PATIENCE):
        run_id, ann, header, payload = await opened(aggregator)
        runner = aggregator.run_registry.runners[run_id]
        other = np.frombuffer(payload) + 1.0
        layout = runner.terms.method.stage(runner.round_sum.consensus.stage).up
        second = pb.UpdateHeader(ref=header.ref, tensor=header_of(other.tobytes(), layout, types.DTYPE_FLOAT64))
        sent = [(header, payload), (header, payload), (second, other.tobytes())]
        fates = [(await ann.SubmitWhole(pb.WholeUpdate(header=one, data=data))).fate for one, data in sent]
        assert fates == [types.FATE_ACCEPTED, types.FATE_DUPLICATE, types.FATE_REJECTED]
        assert runner.round_sum.running is not None
        assert not runner.round_sum.running.total().any()


async def test_an_update_of_which_another_has_begun_to_arrive_is_rejected(tmp_path: Path) -> None:
    async with service(tmp_path) as aggregator, asyncio.timeout(PATIENCE):
        run_id, ann, header, payload = await opened(aggregator)
        other = np.frombuffer(payload) + 1.0
        runner = aggregator.run_registry.runners[run_id]
        layout = runner.terms.method.stage(runner.round_sum.consensus.stage).up
        begun = pb.UpdateHeader(ref=header.ref, tensor=header_of(other.tobytes(), layout, types.DTYPE_FLOAT64))
        call = ann.SubmitUpdate()
        await call.write(pb.UpdatePart(header=begun))
        (chunk,) = chunks(other.tobytes())
        await call.write(pb.UpdatePart(chunk=types.Chunk(offset=0, data=chunk.data[:8])))
        while not (await ann.ResumeUpload(begun)).offset:
            continue
        receipt = await ann.SubmitWhole(pb.WholeUpdate(header=header, data=payload))
        assert receipt.fate == types.FATE_REJECTED


def _short(header: pb.UpdateHeader, payload: bytes) -> tuple[pb.UpdateHeader, bytes]:
    return header, payload[:-8]


def _long(header: pb.UpdateHeader, payload: bytes) -> tuple[pb.UpdateHeader, bytes]:
    return header, payload + bytes(8)


def _other_digest(header: pb.UpdateHeader, payload: bytes) -> tuple[pb.UpdateHeader, bytes]:
    header.tensor.sha256 = bytes(32)
    return header, payload


def _other_shape(header: pb.UpdateHeader, payload: bytes) -> tuple[pb.UpdateHeader, bytes]:
    header.tensor.rows += 1
    return header, payload + bytes(8 * header.tensor.columns)


def _not_finite(header: pb.UpdateHeader, payload: bytes) -> tuple[pb.UpdateHeader, bytes]:
    return header, np.array([np.nan]).tobytes() + payload[8:]


@pytest.mark.parametrize("spoil", [_short, _long, _other_digest, _other_shape, _not_finite])
async def test_what_the_spec_does_not_allow_is_turned_away_and_not_counted(
    tmp_path: Path, spoil: Callable[[pb.UpdateHeader, bytes], tuple[pb.UpdateHeader, bytes]]
) -> None:
    async with service(tmp_path) as aggregator, asyncio.timeout(PATIENCE):
        run_id, ann, header, payload = await opened(aggregator)
        before = aggregator.run_registry.runners[run_id].run
        kept = pb.UpdateHeader.FromString(header.SerializeToString())
        spoilt, data = spoil(header, payload)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await ann.SubmitWhole(pb.WholeUpdate(header=spoilt, data=data))
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert aggregator.run_registry.runners[run_id].run is before
        receipt = await ann.SubmitWhole(pb.WholeUpdate(header=kept, data=payload))
        assert receipt.fate == types.FATE_ACCEPTED


async def test_a_repeat_of_an_update_in_one_message_is_a_duplicate(tmp_path: Path) -> None:
    async with ready_to_upload(tmp_path) as (link, header, payload):
        fates = [(await link.upload(header, payload, len(NAMES))).fate for _ in range(2)]
        assert fates == [types.FATE_ACCEPTED, types.FATE_DUPLICATE]

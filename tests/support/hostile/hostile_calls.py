"""Calls with arbitrary bytes in them, and whether what came back is a defect of the service."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc

from tests.support.hostile.hostile_messages import Case
from tests.support.services.service import Service

PATIENCE = 20.0
DEFECTS = (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED)


async def attack(channel: grpc.aio.Channel, one: Case) -> tuple[grpc.StatusCode, str]:
    """The status of one call; a stream of assignments that is let in is hung up on."""
    path = f"/{one.method.containing_service.full_name}/{one.method.name}"
    kind = "_".join(
        "stream" if streams else "unary" for streams in (one.method.client_streaming, one.method.server_streaming)
    )
    body: Any = _stream(one.messages) if one.method.client_streaming else one.messages[0]
    call = getattr(channel, kind)(path)(body, timeout=PATIENCE)
    try:
        if one.method.server_streaming:
            async for _ in call:
                call.cancel()
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    except asyncio.CancelledError:
        pass
    return grpc.StatusCode.OK, ""


async def _stream(messages: tuple[bytes, ...]) -> Any:
    for message in messages:
        yield message


def is_defect(code: grpc.StatusCode, details: str) -> bool:
    """Bytes that are no message at all are turned away by gRPC itself, and a caller that still writes when the answer
    has come may hear of that from its own side: neither is a failure of the service."""
    return code in DEFECTS and "deserializing" not in details and details != "Internal error from Core"


def failures_told(aggregator: Service) -> float:
    """How many calls the service itself counts as failed, whatever their callers heard."""
    return sum(
        sample.value
        for family in aggregator.run_registry.telemetry.registry.collect()
        for sample in family.samples
        if sample.name == "dcfpca_calls_total" and sample.labels["status"] in ("INTERNAL", "UNKNOWN")
    )


def memory_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4

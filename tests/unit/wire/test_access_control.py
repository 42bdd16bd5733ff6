"""Every role × method pair, from the table and the services' own descriptors, so that no new call can be forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from dcfpca.identity import Role
from dcfpca.pki.revocation import key_mark
from dcfpca.v1 import admin_pb2, rounds_pb2
from dcfpca.wire.access_control import ALLOWED_ROLES
from tests.support.services.service import Service, service

SERVICES: tuple[ServiceDescriptor, ...] = (
    rounds_pb2.DESCRIPTOR.services_by_name["RoundService"],
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"],
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
)
METHODS = {f"/{service.full_name}/{method.name}": method for service in SERVICES for method in service.methods}
# What each role is for, said independently of the table.
OURS = {
    Role.PARTICIPANT: {name for name in METHODS if "RoundService" in name} | {"/dcfpca.v1.AdminService/FetchAuditLog"},
    Role.OPERATOR: {name for name in METHODS if "AdminService" in name},
    Role.AGGREGATOR: set(),
}


def test_the_table_names_every_method_of_every_service_and_no_other() -> None:
    assert set(ALLOWED_ROLES) == set(METHODS)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_role_may_call_what_it_is_for_and_nothing_else(role: Role, method: str) -> None:
    open_to_all = "grpc." in method
    assert (role in ALLOWED_ROLES[method]) == (open_to_all or method in OURS[role])


@pytest.fixture
async def aggregator(tmp_path: Path) -> AsyncIterator[Service]:
    async with service(tmp_path) as made:
        yield made


async def status_of(channel: grpc.aio.Channel, method: str) -> grpc.StatusCode:
    """What an empty message to this method gets; a stream that stays open counts as let in."""
    kind = METHODS[method]
    streams_in, streams_out = kind.client_streaming, kind.server_streaming
    make: Any = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[streams_in, streams_out]
    call = make(method)(iter([b""]) if streams_in else b"", timeout=5)
    try:
        if streams_out:
            async for _ in call:
                break
            else:
                return grpc.StatusCode.OK
            call.cancel()
            return grpc.StatusCode.OK
        await call
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("role", Role)
async def test_with_a_revoked_certificate_no_method_is_answered(aggregator: Service, role: Role) -> None:
    own = aggregator.credentials(role, f"some-{role}")
    aggregator.trust.revoke(key_mark(own.certificate))
    channel = aggregator.channel_of(own)
    told = {method: await status_of(channel, method) for method in METHODS}
    assert set(told.values()) == {grpc.StatusCode.UNAUTHENTICATED}, told


@pytest.mark.parametrize("role", Role)
async def test_the_running_service_keeps_the_table(aggregator: Service, role: Role) -> None:
    channel = aggregator.channel(role, f"some-{role}")
    told = {method: await status_of(channel, method) for method in METHODS}
    denied = {method for method, status in told.items() if status is grpc.StatusCode.PERMISSION_DENIED}
    assert denied == {method for method in METHODS if role not in ALLOWED_ROLES[method]}
    assert grpc.StatusCode.INTERNAL not in told.values()
    assert grpc.StatusCode.UNKNOWN not in told.values()

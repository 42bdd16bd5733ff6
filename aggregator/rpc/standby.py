"""The server of an aggregator that waits for the lease: it says so to health probes and to everybody who calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from aggregator.config import Config
from aggregator.rpc.server import bind, new_server
from aggregator.trust import Trust
from dcfpca.wire.constants import STANDBY

_NOT_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)


class StandbyServer:
    """Listens where the service will, behind the same mutual TLS; it knows nothing but that it is a standby."""

    def __init__(self, config: Config, trust: Trust, holder: Callable[[], str]) -> None:
        """`holder` says who serves meanwhile."""
        self._server = new_server(config.limits, ())
        health_pb2_grpc.add_HealthServicer_to_server(_Health(holder), self._server)
        self._server.add_generic_rpc_handlers((_Refusal(holder),))
        self.port = bind(self._server, config.server.listen, trust)

    async def start(self) -> None:
        """Listen."""
        await self._server.start()

    async def stop(self) -> None:
        """Close every connection, so that the address is free for the service."""
        await self._server.stop(0)


class _Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """NOT_SERVING; the trailing metadata tells a standby from a service in trouble."""

    def __init__(self, holder: Callable[[], str]) -> None:
        self._holder = holder

    async def Check(self, request: Any, context: aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """Answer a probe."""
        context.set_trailing_metadata(((STANDBY, self._holder()),))
        return _NOT_SERVING


class _Refusal(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Any other call is refused in a way that lets the caller try the next address."""

    def __init__(self, holder: Callable[[], str]) -> None:
        self._holder = holder

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """A handler for every method; one that streams both ways fits them all."""

        async def refuse(requests: Any, context: aio.ServicerContext[Any, Any]) -> None:
            told = f"this aggregator is a standby; {self._holder() or 'nobody'} serves"
            await context.abort(grpc.StatusCode.UNAVAILABLE, told)

        return grpc.stream_stream_rpc_method_handler(refuse)

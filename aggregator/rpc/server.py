"""The gRPC server: mutual TLS with certificates that reload while it runs, limits, keepalive, health.

An aggregator that waits for the lease listens, too: it says to health probes and to everybody who calls that it is a
standby.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection

from aggregator.config import Config, Limits
from aggregator.rpc.admin import AdminServicer
from aggregator.rpc.guard import Guard
from aggregator.rpc.rounds import RoundServicer
from aggregator.run_registry import RunRegistry
from aggregator.trust import Trust
from dcfpca.errors import BadInput
from dcfpca.pki.credential_files import Credentials
from dcfpca.v1 import admin_pb2, admin_pb2_grpc, rounds_pb2, rounds_pb2_grpc
from dcfpca.wire.constants import STANDBY
from dcfpca.wire.tensors import read_update_part, read_whole_update

SERVICES = (
    rounds_pb2.DESCRIPTOR.services_by_name["RoundService"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
)

# Long rounds are silent; pings keep NATs and proxies from forgetting the connection, and find dead peers.
_OPTIONS = [
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 10),
    ("grpc.max_concurrent_streams", 100),
    ("grpc.max_receive_message_length", 4 << 20),
    ("grpc.so_reuseport", 0),
    # Otherwise every connection comes to keep a buffer of twice the most that was ever read at once: with 80 kB
    # messages 150 KiB more each. Larger reads would not make uploads any faster.
    ("grpc.experimental.tcp_max_read_buffer_size", 8192),
]

Reader = Callable[[bytes], Any]


def _limits(limits: Limits) -> list[tuple[str, int]]:
    """Limits on peers that have not authenticated yet."""
    return [
        ("grpc.server_handshake_timeout_ms", round(limits.handshake_seconds * 1000)),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
    ]


def new_server(limits: Limits, interceptors: Sequence[aio.ServerInterceptor]) -> aio.Server:  # type: ignore[type-arg]
    """A server that does not listen yet."""
    return aio.server(interceptors=interceptors, options=[*_OPTIONS, *_limits(limits)])


def bind(server: aio.Server, listen: str, trust: Trust) -> int:
    """The port on which the server will listen, with certificates that reload; raises BadInput if it is not free."""
    hint = "choose another port in [server] listen, or stop what uses it"
    try:
        port = server.add_secure_port(listen, ServedCertificate(trust).credentials())
    except RuntimeError as error:
        raise BadInput(
            f"the service cannot listen on {listen}: the address is in use, or is not one of this machine", hint
        ) from error
    if not port:
        raise BadInput(f"the service cannot listen on {listen}", hint)
    return port


class ServedCertificate:
    """The certificate that a server shows: the one on disk, checked for renewal at every handshake."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._shown: Credentials | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """TLS credentials whose renewal needs no restart."""
        first = self._renewed()
        assert first is not None
        # The stubs forget that None means: no change.
        return grpc.dynamic_ssl_server_credentials(first, self._renewed, True)  # type: ignore[arg-type]

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """The certificate to use if it changed, else None.

        Returning the same one at every handshake would be simpler, but gRPC replaces its TLS state each time, and
        two handshakes at once then free it twice: a burst of connections aborted the process.
        """
        shown = self._trust.credentials
        if shown is self._shown:
            return None
        self._shown = shown
        return grpc.ssl_server_certificate_configuration([(shown.key_pem, shown.cert_pem)], shown.ca_pem)


class Server:
    """The listening service."""

    def __init__(self, config: Config, registry: RunRegistry, trust: Trust, holds_lease: Callable[[], bool]) -> None:
        self._drain = config.server.drain_seconds
        self.health = _LeasedHealth(holds_lease)
        guard = Guard(trust, config.limits, registry.telemetry, registry.held)
        self.calls = guard.calls
        self._server = new_server(config.limits, [guard])
        rounds = RoundServicer(registry, trust, config.limits)
        methods = NamedMethods(self._server, {"SubmitWhole": read_whole_update, "SubmitUpdate": read_update_part})
        rounds_pb2_grpc.add_RoundServiceServicer_to_server(rounds, methods)
        admin = AdminServicer(registry, trust, config.limits, guard.calls)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, methods)
        health_pb2_grpc.add_HealthServicer_to_server(self.health, methods)
        reflection.enable_server_reflection((*SERVICES, "grpc.health.v1.Health"), self._server)
        self.port = bind(self._server, config.server.listen, trust)

    async def start(self) -> None:
        """Listen, and tell health probes."""
        await self._server.start()
        await self.tell_health(serving=True)

    async def tell_health(self, *, serving: bool) -> None:
        """Set the status that probes receive, for the whole server and for each service."""
        word = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *SERVICES):
            await self.health.set(service, word)

    async def stop(self) -> None:
        """Tell probes, let open calls finish, then close."""
        await self.health.enter_graceful_shutdown()
        await self._server.stop(self._drain)


class NamedMethods:
    """Registers services by name; generated code takes it for the server.

    gRPC waits for a call of each registered method by itself, and goes through all of these waits at every call: with
    our forty methods that was a tenth of the aggregator's Python. For methods that are found by name it waits once.
    """

    def __init__(self, server: aio.Server, readers: Mapping[str, Reader]) -> None:
        """`readers` are deserializers to use instead of the generated ones, by the name of a method with one answer."""
        self._server, self._readers = server, readers

    def add_generic_rpc_handlers(self, handlers: object) -> None:
        """Nothing: the same methods follow by name."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Add the methods of a service."""
        found = {name: self._with_reader(name, handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, found),))

    def _with_reader(self, name: str, handler: Any) -> Any:
        if (read := self._readers.get(name)) is None:
            return handler
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(handler.stream_unary, read, handler.response_serializer)
        return grpc.unary_unary_rpc_method_handler(handler.unary_unary, read, handler.response_serializer)


_NOT_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)


class _LeasedHealth(HealthServicer):  # type: ignore[misc]
    """Never answers SERVING while another aggregator may hold the lease, even right after this process was paused."""

    def __init__(self, holds_lease: Callable[[], bool]) -> None:
        super().__init__()
        self._holds_lease = holds_lease

    async def Check(self, request: Any, context: aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """Answer a probe."""
        return await super().Check(request, context) if self._holds_lease() else _NOT_SERVING


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
    """Answers NOT_SERVING; the trailing metadata distinguishes a standby from a service in trouble."""

    def __init__(self, holder: Callable[[], str]) -> None:
        self._holder = holder

    async def Check(self, request: Any, context: aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """Answer a probe."""
        context.set_trailing_metadata(((STANDBY, self._holder()),))
        return _NOT_SERVING


class _Refusal(grpc.GenericRpcHandler):  # type: ignore[type-arg]
    """Refuses every other call with UNAVAILABLE, so that the caller tries the next address."""

    def __init__(self, holder: Callable[[], str]) -> None:
        self._holder = holder

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        """A handler for every method; one that streams both ways fits them all."""

        async def refuse(requests: Any, context: aio.ServicerContext[Any, Any]) -> None:
            sentence = f"this aggregator is a standby; {self._holder() or 'nobody'} serves"
            await context.abort(grpc.StatusCode.UNAVAILABLE, sentence)

        return grpc.stream_stream_rpc_method_handler(refuse)

"""The one interceptor before every method: who calls, may they, are they within limits; and our errors as statuses."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc
from grpc import aio

from aggregator.rpc.faults import as_ours, status_of
from aggregator.rpc.limits import Meter
from aggregator.rpc.roles import may_call
from aggregator.telemetry import Telemetry
from aggregator.trust import Caller, Trust
from dcfpca.errors import BadIdentity, BadMessage, DcfpcaError, Refused
from dcfpca.logs import log
from dcfpca.names import PROTOCOL
from dcfpca.version import __version__

_ILLEGIBLE = object()
_CALLER: ContextVar[Caller] = ContextVar("caller")


def _unless_encoded(serializer: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """A message that many are sent is encoded once, by the one who makes it."""
    return lambda message: message if isinstance(message, bytes) else serializer(message)


def caller() -> Caller:
    """Who makes the present call."""
    return _CALLER.get()


def _about_us() -> tuple[tuple[str, str], ...]:
    """What every answer tells beside itself, so that `doctor` can compare clocks and versions."""
    now = ("dcfpca-time-ms", str(time.time_ns() // 1_000_000))
    return (now, ("dcfpca-version", __version__), ("dcfpca-protocol", str(PROTOCOL)))


class Guard(aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps every handler; nothing behind it needs to ask for permission again."""

    def __init__(self, trust: Trust, meter: Meter, telemetry: Telemetry) -> None:
        self._trust, self._meter, self._telemetry = trust, meter, telemetry

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """The handler of this method behind the guard."""
        handler = await continuation(details)
        return handler and self._wrapped(handler, details.method)

    def _wrapped(self, handler: Any, method: str) -> Any:
        behaviour = handler.unary_unary or handler.stream_unary or handler.unary_stream or handler.stream_stream
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        guarded = self._streaming(behaviour, method) if handler.response_streaming else self._unary(behaviour, method)
        read = handler.request_deserializer if handler.request_streaming else _readable(handler.request_deserializer)
        return make(guarded, read, _unless_encoded(handler.response_serializer))

    def _unary(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
            try:
                who = self._admit(method, context)
                with self._meter.call(str(who.identity), time.monotonic()), self._telemetry.call(method):
                    answer = await behaviour(_legible(request), context)
                context.set_trailing_metadata(_about_us())
            except aio.AbortError:
                raise
            except Exception as error:
                return await self._abort(context, method, as_ours(error, method))
            self._telemetry.call_ended(method, "OK")
            return answer

        return call

    def _streaming(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
            try:
                who = self._admit(method, context)
                with self._meter.call(str(who.identity), time.monotonic()):
                    result = behaviour(_legible(request), context)
                    if hasattr(result, "__aiter__"):
                        async for message in result:
                            yield message
                    else:
                        await result
            except aio.AbortError:
                raise
            except Exception as error:
                await self._abort(context, method, as_ours(error, method))
            self._telemetry.call_ended(method, "OK")

        return call

    def _admit(self, method: str, context: aio.ServicerContext[Any, Any]) -> Caller:
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            raise BadIdentity("no certificate was shown", "connect with mutual TLS")
        who = self._trust.caller(next(iter(shown)))
        if not may_call(who.identity.role, method):
            name = method.rsplit("/", 1)[-1]
            raise Refused(f"the role {who.identity.role} may not call {name}", "use a certificate of the right role")
        _CALLER.set(who)
        return who

    async def _abort(self, context: aio.ServicerContext[Any, Any], method: str, error: DcfpcaError) -> None:
        code, message = status_of(error)
        self._telemetry.call_ended(method, code.name)
        known = _CALLER.get(None)
        log("call_refused", level="warning", method=method.rsplit("/", 1)[-1], status=code.name, reason=str(error),
            caller=str(known.identity) if known else context.peer())  # fmt: skip
        await context.abort(code, message)


def _readable(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A reader that does not raise: where it does, gRPC leaves the caller of a unary method without any answer."""

    def careful(body: bytes) -> Any:
        try:
            return read(body)
        except Exception:
            return _ILLEGIBLE

    return careful


def _legible(request: Any) -> Any:
    if request is _ILLEGIBLE:
        raise BadMessage("what came is no message of this protocol")
    return request

"""The interceptor before every method: authenticates the caller, checks role and limits, maps errors to statuses."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import grpc
from grpc import aio

from aggregator.config import Limits
from aggregator.rpc.open_calls import OpenCalls
from aggregator.rpc.status_errors import Overloaded, TooSlow, as_dcfpca_error, status_of
from aggregator.telemetry import Telemetry
from aggregator.trust import Caller, Trust
from dcfpca.errors import BadIdentity, BadMessage, DcfpcaError, Refused
from dcfpca.logs import log
from dcfpca.version import __version__
from dcfpca.wire.access_control import may_call
from dcfpca.wire.constants import CHUNK_BYTES, PROTOCOL

_UNDECODABLE = object()
_WATCHES = frozenset({"/dcfpca.v1.AdminService/WatchRun", "/grpc.health.v1.Health/Watch"})
"""Calls that stay open for as long as somebody looks; they are counted apart from those that do something."""
_CALLER: ContextVar[Caller] = ContextVar("caller")
# All callers whose certificates are rejected share one set of limits.
_UNTRUSTED = "callers with untrusted certificates"

LOG_SECONDS = 10.0
"""The least time between two log lines about one identity that exceeds its limits."""


def _unless_encoded(serializer: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """A serializer that passes through messages that are already encoded, once for many receivers."""
    return lambda message: message if isinstance(message, bytes) else serializer(message)


def caller() -> Caller:
    """The caller of the present call."""
    return _CALLER.get()


def _trailing_metadata(held: int) -> tuple[tuple[str, str], ...]:
    """Clock, versions and how many runs are held, sent with every answer for `doctor` and `health`."""
    now = ("dcfpca-time-ms", str(time.time_ns() // 1_000_000))
    return (now, ("dcfpca-version", __version__), ("dcfpca-protocol", str(PROTOCOL)), ("dcfpca-runs-held", str(held)))


class Guard(aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps every handler; the methods behind it need no further authorization."""

    def __init__(
        self, trust: Trust, limits: Limits, telemetry: Telemetry, runs_held: Callable[[], int] = lambda: 0
    ) -> None:
        """`runs_held` counts the runs that cannot be served, for whoever asks about the service's health."""
        self._runs_held = runs_held
        self._trust, self._limiter, self._telemetry = trust, CallLimiter(limits), telemetry
        self._read_seconds = limits.read_seconds
        self._guarded: dict[str, Any] = {}
        self.calls = OpenCalls()

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """The handler of this method behind the guard."""
        if (known := self._guarded.get(details.method)) is not None:
            return known
        handler = await continuation(details)
        if handler is None:
            return None
        self._guarded[details.method] = self._wrapped(handler, details.method)
        return self._guarded[details.method]

    def _wrapped(self, handler: Any, method: str) -> Any:
        behaviour = handler.unary_unary or handler.stream_unary or handler.unary_stream or handler.stream_stream
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        guarded = self._streaming(behaviour, method) if handler.response_streaming else self._unary(behaviour, method)
        read = (
            handler.request_deserializer if handler.request_streaming else _never_raising(handler.request_deserializer)
        )
        return make(guarded, read, _unless_encoded(handler.response_serializer))

    def _unary(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
            try:
                with self._admitted(method, context), self._telemetry.call(method):
                    answer = await behaviour(_decoded(request), context)
                context.set_trailing_metadata(_trailing_metadata(self._runs_held()))
            except aio.AbortError:
                raise
            except Exception as error:
                return await self._abort(context, method, as_dcfpca_error(error, method))
            self._telemetry.call_ended(method, "OK")
            return answer

        return call

    def _streaming(self, behaviour: Callable[..., Any], method: str) -> Callable[..., Any]:
        async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> None:
            try:
                with self._admitted(method, context):
                    try:
                        await self._send(behaviour(_decoded(request), context), context)
                    except TooSlow as error:
                        # Inside `_admitted`, so that the call counts as open: gRPC keeps unread messages meanwhile.
                        await self._abort(context, method, error)
            except aio.AbortError:
                raise
            except Exception as error:
                await self._abort(context, method, as_dcfpca_error(error, method))
            self._telemetry.call_ended(method, "OK")

        return call

    async def _send(self, result: Any, context: aio.ServicerContext[Any, Any]) -> None:
        """Send the messages of a method; the standard health service writes by itself."""
        if not hasattr(result, "__aiter__"):
            await result
            return
        async with aclosing(result) as messages:
            async for message in messages:
                await self._write(message, context)

    async def _write(self, message: Any, context: aio.ServicerContext[Any, Any]) -> None:
        """Send one message of a stream; raises TooSlow when the caller does not read it in time."""
        chunks = 1 + len(message) // CHUNK_BYTES if isinstance(message, bytes) else 1
        seconds = chunks * self._read_seconds
        try:
            async with asyncio.timeout(seconds):
                await context.write(message)
        except TimeoutError:
            raise TooSlow(f"nothing was read for {seconds:g} seconds", "read what was asked for") from None

    @contextmanager
    def _admitted(self, method: str, context: aio.ServicerContext[Any, Any]) -> Iterator[None]:
        """Admit a call for its duration, or raise."""
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            raise BadIdentity("no certificate was shown", "connect with mutual TLS")
        who = self._authenticated(next(iter(shown)))
        _CALLER.set(who)
        # Counted before the role is checked, so that refused calls are limited, too.
        with self._limiter.call(str(who.identity), time.monotonic(), watch=method in _WATCHES), self.calls.hold(who):
            if not may_call(who.identity.role, method):
                name, hint = _short(method), "use a certificate of the right role"
                raise Refused(f"the role {who.identity.role} may not call {name}", hint)
            yield

    def _authenticated(self, shown: bytes) -> Caller:
        """The caller with this certificate; rejected certificates count against the shared limits."""
        try:
            return self._trust.caller(shown)
        except BadIdentity:
            with self._limiter.call(_UNTRUSTED, time.monotonic()):
                raise

    async def _abort(self, context: aio.ServicerContext[Any, Any], method: str, error: DcfpcaError) -> None:
        code, message = status_of(error)
        self._telemetry.call_ended(method, code.name)
        known = _CALLER.get(None)
        if not isinstance(error, Overloaded) or self._should_log(known):
            log("call_refused", level="warning", method=_short(method), status=code.name, reason=str(error),
                caller=str(known.identity) if known else context.peer())  # fmt: skip
        await context.abort(code, message)

    def _should_log(self, known: Caller | None) -> bool:
        return self._limiter.should_log(str(known.identity) if known else _UNTRUSTED, time.monotonic())


def _short(method: str) -> str:
    return method.rsplit("/", 1)[-1]


def _never_raising(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A deserializer that does not raise, because gRPC would leave the caller of a unary method without an answer."""

    def careful(body: bytes) -> Any:
        try:
            return read(body)
        except Exception:
            return _UNDECODABLE

    return careful


def _decoded(request: Any) -> Any:
    if request is _UNDECODABLE:
        raise BadMessage("what came is no message of this protocol")
    return request


@dataclass(slots=True)
class _Account:
    tokens: float
    at: float
    open: int = 0
    watches: int = 0
    logged_at: float = -math.inf


class CallLimiter:
    """A token bucket and counts of open calls and watches per identity; watches leave room for calls that act."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._accounts: dict[str, _Account] = {}

    @contextmanager
    def call(self, who: str, now: float, *, watch: bool = False) -> Iterator[None]:
        """Count one call, or one watch, while it lasts; raises Overloaded when the identity exceeds its limits."""
        account = self._accounts.setdefault(who, _Account(self._limits.call_burst, now))
        earned = (now - account.at) * self._limits.calls_per_second
        account.tokens, account.at = min(self._limits.call_burst, account.tokens + earned), now
        if account.tokens < 1:
            raise Overloaded(f"{who} makes more than {self._limits.calls_per_second:g} calls a second", "slow down")
        self._check_open(who, account, watch)
        account.tokens -= 1
        account.watches += watch
        account.open += not watch
        try:
            yield
        finally:
            account.watches -= watch
            account.open -= not watch

    def _check_open(self, who: str, account: _Account, watch: bool) -> None:
        if watch and account.watches >= self._limits.concurrent_watches:
            raise Overloaded(f"{who} has {account.watches} watches open, which is the most allowed", "end some first")
        if not watch and account.open >= self._limits.concurrent_calls:
            raise Overloaded(f"{who} has {account.open} calls open, which is the most allowed", "finish some first")

    def should_log(self, who: str, now: float) -> bool:
        """True if the log has not mentioned this identity lately, so that a flood of calls does not flood the log."""
        account = self._accounts[who]
        if now - account.logged_at < LOG_SECONDS:
            return False
        account.logged_at = now
        return True

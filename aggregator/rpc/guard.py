"""The interceptor before every method: authenticates the caller, checks role and limits, maps errors to statuses.

It knows the calls in progress, so that those of a certificate that is no longer trusted can be cut.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import grpc
from grpc import aio

from aggregator.config import Limits
from aggregator.rpc.answers import Overloaded, TooSlow, as_dcfpca_error, status_of
from aggregator.telemetry import Telemetry
from aggregator.trust import CALLER, Caller, Trust
from dcfpca.errors import BadIdentity, BadMessage, DcfpcaError, Refused
from dcfpca.identity import Role
from dcfpca.logs import log
from dcfpca.version import __version__
from dcfpca.wire.access_control import ALLOWED_ROLES
from dcfpca.wire.constants import CHUNK_BYTES, PROTOCOL

_UNDECODABLE = object()
_WATCHES = frozenset({"/dcfpca.v1.AdminService/WatchRun", "/grpc.health.v1.Health/Watch"})
"""Calls that stay open for as long as somebody looks; they are counted apart from those that do something."""
# All callers whose certificates are rejected share one set of limits.
_UNTRUSTED = "callers with untrusted certificates"

_VERSIONS = (("dcfpca-version", __version__), ("dcfpca-protocol", str(PROTOCOL)))

LOG_SECONDS = 10.0
"""The least time between two log lines about one identity that exceeds its limits."""


def _unless_encoded(serializer: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """A serializer that passes through messages that are already encoded, once for many receivers."""
    return lambda message: message if isinstance(message, bytes) else serializer(message)


class Method(NamedTuple):
    """What the guard knows of a method: its short name and who may call it; nobody, if no table lists the method."""

    name: str
    roles: frozenset[Role]
    is_watch: bool


class Guard(aio.ServerInterceptor):  # type: ignore[type-arg]
    """Wraps every handler; the methods behind it need no further authorization."""

    def __init__(self, trust: Trust, limits: Limits, telemetry: Telemetry, held: Collection[object]) -> None:
        """`held` are the runs that cannot be served; their number is for whoever asks about the service's health."""
        self._held = held
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

    def _wrapped(self, handler: Any, path: str) -> Any:
        behaviour = handler.unary_unary or handler.stream_unary or handler.unary_stream or handler.stream_stream
        make = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }[handler.request_streaming, handler.response_streaming]
        method = Method(path.rsplit("/", 1)[-1], ALLOWED_ROLES.get(path, frozenset()), path in _WATCHES)
        guarded = self._streaming(behaviour, method) if handler.response_streaming else self._unary(behaviour, method)
        read = (
            handler.request_deserializer if handler.request_streaming else _never_raising(handler.request_deserializer)
        )
        return make(guarded, read, _unless_encoded(handler.response_serializer))

    def _unary(self, behaviour: Callable[..., Any], method: Method) -> Callable[..., Any]:
        async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
            began = time.monotonic()
            try:
                with self._admitted(method, context, began):
                    if request is _UNDECODABLE:
                        raise BadMessage("the message is not one of this protocol")
                    answer = await behaviour(request, context)
            except aio.AbortError:
                raise
            except Exception as error:
                seconds = time.monotonic() - began
                return await self._abort(context, method, as_dcfpca_error(error, method.name), seconds)
            # Clock, versions and how many runs are held, for `doctor` and `health`.
            clock, held = str(time.time_ns() // 1_000_000), str(len(self._held))
            context.set_trailing_metadata((("dcfpca-time-ms", clock), *_VERSIONS, ("dcfpca-runs-held", held)))
            self._telemetry.call_ended(method.name, "OK", time.monotonic() - began)
            return answer

        return call

    def _streaming(self, behaviour: Callable[..., Any], method: Method) -> Callable[..., Any]:
        async def call(request: Any, context: aio.ServicerContext[Any, Any]) -> None:
            try:
                with self._admitted(method, context, time.monotonic()):
                    try:
                        if request is _UNDECODABLE:
                            raise BadMessage("the message is not one of this protocol")
                        await self._send(behaviour(request, context), context)
                    except TooSlow as error:
                        # Inside `_admitted`, so that the call counts as open: gRPC keeps unread messages meanwhile.
                        await self._abort(context, method, error)
            except aio.AbortError:
                raise
            except Exception as error:
                await self._abort(context, method, as_dcfpca_error(error, method.name))
            self._telemetry.call_ended(method.name, "OK")

        return call

    async def _send(self, result: Any, context: aio.ServicerContext[Any, Any]) -> None:
        """Send the messages of a method; raises TooSlow when the caller does not read one in time."""
        if not hasattr(result, "__aiter__"):
            await result  # the standard health service writes by itself
            return
        async with aclosing(result) as messages:
            async for message in messages:
                chunks = 1 + len(message) // CHUNK_BYTES if isinstance(message, bytes) else 1
                seconds = chunks * self._read_seconds
                try:
                    async with asyncio.timeout(seconds):
                        await context.write(message)
                except TimeoutError:
                    raise TooSlow(f"nothing was read for {seconds:g} seconds", "read what was asked for") from None

    @contextmanager
    def _admitted(self, method: Method, context: aio.ServicerContext[Any, Any], now: float) -> Iterator[None]:
        """Admit a call for its duration, or raise."""
        shown = context.auth_context().get("x509_pem_cert")
        if not shown:
            raise BadIdentity("no certificate was shown", "connect with mutual TLS")
        try:
            who = self._trust.caller(next(iter(shown)))
        except BadIdentity:
            with self._limiter.call(_UNTRUSTED, now):
                raise
        CALLER.set(who)
        # Counted before the role is checked, so that refused calls are limited, too.
        with self._limiter.call(who.title, now, watch=method.is_watch), self.calls.hold(who):
            if who.identity.role not in method.roles:
                hint = f"use a certificate with the role {' or '.join(sorted(method.roles))}"
                raise Refused(f"{who.title} has the role {who.identity.role}, which may not call {method.name}", hint)
            yield

    async def _abort(
        self, context: aio.ServicerContext[Any, Any], method: Method, error: DcfpcaError, seconds: float | None = None
    ) -> None:
        code, message = status_of(error)
        self._telemetry.call_ended(method.name, code.name, seconds)
        known = CALLER.get(None)
        title = known.title if known else _UNTRUSTED
        if not isinstance(error, Overloaded) or self._limiter.should_log(title, time.monotonic()):
            log("call_refused", level="warning", method=method.name, status=code.name, reason=str(error),
                caller=known.title if known else context.peer())  # fmt: skip
        await context.abort(code, message)


def _never_raising(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """A deserializer that does not raise, because gRPC would leave the caller of a unary method without an answer."""

    def careful(body: bytes) -> Any:
        try:
            return read(body)
        except Exception:
            return _UNDECODABLE

    return careful


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
        if watch and account.watches >= self._limits.concurrent_watches:
            raise Overloaded(f"{who} has {account.watches} watches open, which is the most allowed", "end some first")
        if not watch and account.open >= self._limits.concurrent_calls:
            raise Overloaded(f"{who} has {account.open} calls open, which is the most allowed", "finish some first")
        account.tokens -= 1
        account.watches += watch
        account.open += not watch
        try:
            yield
        finally:
            account.watches -= watch
            account.open -= not watch

    def should_log(self, who: str, now: float) -> bool:
        """True if the log has not mentioned this identity lately, so that a flood of calls does not flood the log."""
        account = self._accounts[who]
        if now - account.logged_at < LOG_SECONDS:
            return False
        account.logged_at = now
        return True


@dataclass(slots=True, eq=False)
class _OpenCall:
    who: Caller
    task: asyncio.Task[object]
    cut: bool = False


class OpenCalls:
    """The calls that the guard has admitted and that have not ended."""

    def __init__(self) -> None:
        self._open: set[_OpenCall] = set()

    @contextmanager
    def hold(self, who: Caller) -> Iterator[None]:
        """Count the present task's call as open; raises BadIdentity in it when it is cut."""
        task = asyncio.current_task()
        assert task is not None
        held = _OpenCall(who, task)
        self._open.add(held)
        try:
            yield
        except asyncio.CancelledError:
            # Only `cut` cancelled the task, so the caller is still connected and gets an answer.
            if held.cut and not task.uncancel():
                hint = "ask the holder of the CA for a new one"
                raise BadIdentity("this certificate has been revoked or has expired", hint) from None
            raise
        finally:
            self._open.discard(held)

    def cut(self, is_trusted: Callable[[Caller], bool]) -> int:
        """Cancel every call of callers that are no longer trusted; returns how many."""
        judged = {held.who.fingerprint: is_trusted(held.who) for held in self._open}
        found = [held for held in self._open if not held.cut and not judged[held.who.fingerprint]]
        for held in found:
            held.cut = True
            held.task.cancel()
        return len(found)

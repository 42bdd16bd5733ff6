"""A channel to whichever of several aggregators serves: one of them does, the others stand by."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar

import grpc

from dcfpca.connection_diagnosis import Address

T = TypeVar("T")

PATIENCE_SECONDS = 12.0
"""How long a call is tried at all addresses in turn: longer than a takeover takes."""
PAUSE_SECONDS = 0.3


class FailoverChannel(grpc.Channel):
    """Makes each call at the address that served last, and at the next while a call is answered UNAVAILABLE.

    A stream that breaks after its first message is not continued: that is for the caller, who knows how. Repeating a
    call is safe, because every call of the protocol may be repeated.
    """

    def __init__(self, addresses: Sequence[Address], dial: Callable[[Address], grpc.Channel]) -> None:
        self._turn = itertools.cycle(addresses)
        self._dial = dial
        self.address = next(self._turn)
        self._channel = dial(self.address)

    def unary_unary(self, method: str, *codec: Any, **more: Any) -> Any:
        """A call with one answer."""

        def call(request: Any, timeout: float | None = None) -> Any:
            return self._where_served(lambda: self._channel.unary_unary(method, *codec, **more)(request, timeout))

        return call

    def unary_stream(self, method: str, *codec: Any, **more: Any) -> Any:
        """A call with a stream of answers."""

        def call(request: Any, timeout: float | None = None) -> Iterator[Any]:
            return self._where_served(
                lambda: _begun(self._channel.unary_stream(method, *codec, **more)(request, timeout))
            )

        return call

    def _where_served(self, call: Callable[[], T]) -> T:
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return call()
            except grpc.RpcError as error:
                unavailable = isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNAVAILABLE
                if not unavailable or time.monotonic() > end:
                    raise
            self._go_on()
            time.sleep(PAUSE_SECONDS)

    def _go_on(self) -> None:
        self._channel.close()
        self.address = next(self._turn)
        self._channel = self._dial(self.address)

    def stream_unary(self, method: str, *codec: Any, **more: Any) -> Any:
        """No operator's call is of this kind."""
        raise NotImplementedError

    def stream_stream(self, method: str, *codec: Any, **more: Any) -> Any:
        """No operator's call is of this kind."""
        raise NotImplementedError

    def subscribe(self, callback: Any, try_to_connect: bool = False) -> None:
        """Follow the state of the present connection."""
        self._channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Any) -> None:
        """Stop following it."""
        self._channel.unsubscribe(callback)

    def close(self) -> None:
        """Close the present connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _begun(stream: Any) -> Iterator[Any]:
    """The stream with its first message received; raises what the call was answered with instead."""
    first = list(itertools.islice(stream, 1))
    return itertools.chain(first, stream)

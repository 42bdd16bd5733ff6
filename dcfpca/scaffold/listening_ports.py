"""Ports to listen on that stay free while nobody listens on them."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path

_LOWEST = 20_000
_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")
_OUTGOING_ELSEWHERE = 32_768  # the lowest default of the systems we know
_TRIES = 100


def free_ports(count: int) -> list[int]:
    """Different ports of this machine on which nobody listens now.

    They lie below those that the system gives to outgoing connections: one of those might be taken by anybody's
    connection before the service is started, or while it is restarted.
    """
    with ExitStack() as taken:
        return [_free_port(taken) for _ in range(count)]


def _free_port(taken: ExitStack) -> int:
    last = _first_outgoing()
    for _ in range(_TRIES if last > _LOWEST else 0):
        with suppress(OSError):
            return _bound(random.randrange(_LOWEST, last), taken)  # noqa: S311  nothing is kept secret by it
    return _bound(0, taken)


def _bound(port: int, taken: ExitStack) -> int:
    server = taken.enter_context(socket.create_server(("127.0.0.1", port)))
    return int(server.getsockname()[1])


def _first_outgoing() -> int:
    try:
        return int(_OUTGOING.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _OUTGOING_ELSEWHERE

"""A read-only web server: GET and HEAD, a few short pages and event streams, no framework.

It carries metrics and the dashboard, on a port of its own beside the gRPC service. It reads at most one small
request per connection and closes it, so there is no state to get wrong. The server of prometheus_client would not do:
it runs in a thread of its own, streams nothing, and answers to any host name (see `answers_to`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import IPv4Address, IPv6Address, ip_address

from dcfpca.errors import BadInput
from dcfpca.logs import log

REQUEST_SECONDS = 5.0
READ_SECONDS = 30.0
LARGEST_REQUEST = 16 << 10
MOST_CONNECTIONS = 128

# The page may load, send to and be framed by no other origin.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A parsed request; the query string is not interpreted."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """A page, or a stream of chunks that lasts until the reader disconnects."""

    body: bytes | AsyncIterator[bytes]
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


Handler = Callable[[Request], Awaitable[Response]]


class WebServer:
    """Serves one handler at one address."""

    def __init__(self, listen: str, handler: Handler, hosts: Sequence[str] | None = None) -> None:
        """`hosts` are the names by which the page may be asked for; None: any, unless it listens on loopback."""
        self.host, self._wanted = split_address(listen)
        self._handler, self._hosts = handler, hosts
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The URL for a browser."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"http://[{self.host}]:{port}/" if ":" in self.host else f"http://{self.host}:{port}/"

    async def start(self) -> None:
        """Listen; raises BadInput if the address cannot be bound."""
        try:
            self._server = await asyncio.start_server(self._accept, self.host, self._wanted, limit=LARGEST_REQUEST)
        except OSError as error:
            hint = "choose another port, or stop what uses it"
            raise BadInput(f"nothing can be served on {self.host}:{self._wanted}: {error.strerror}", hint) from error

    async def stop(self) -> None:
        """Close every connection, event streams included."""
        if self._server is None:
            return
        self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read(reader)
        response = _refusal(request, self.host, len(self._open), self._hosts) if request is not None else _BAD
        if response is None:
            assert request is not None
            response = await self._handler(request)
        alone = request is not None and request.method == "HEAD"
        await _write(writer, response, head_only=alone)


async def serve_beside(
    what: str, listen: str, handler: Handler, hosts: Sequence[str] | None = None
) -> WebServer | None:
    """Serve a page in the background; None, with a warning in the log, when its address cannot be used."""
    if not listen:
        return None
    server = WebServer(listen, handler, hosts)
    try:
        await server.start()
    except BadInput as error:
        log(f"{what}_not_served", level="warning", reason=str(error), hint=error.hint)
        return None
    log(f"{what}_served", url=server.url)
    return server


_BAD = Response(b"bad request\n", status=HTTPStatus.BAD_REQUEST)


Listener = socket.socket


def loopback(port: int) -> Listener:
    """A socket that listens on this machine alone; BadInput if another program uses the port."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        hint = "choose another port: --port, or [console] listen"
        raise BadInput(f"the console cannot listen at 127.0.0.1:{port}: {error.strerror}", hint) from None


def not_found() -> Response:
    """The answer to a path that does not exist."""
    return Response(b"not found\n", status=HTTPStatus.NOT_FOUND)


def split_address(listen: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; raises BadInput."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"{listen!r} is not an address to listen on", "write HOST:PORT, such as 127.0.0.1:9464")
    return host.removeprefix("[").removesuffix("]"), int(port)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    """The request, or None if it is malformed, too large or too slow."""
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
    except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[1].startswith("/"):
        return None
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Request(words[0], words[1].partition("?")[0], headers)


def _refusal(request: Request, listens: str, open_now: int, hosts: Sequence[str] | None = None) -> Response | None:
    if request.method not in ("GET", "HEAD"):
        return Response(b"this page can only be looked at\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
    if open_now > MOST_CONNECTIONS:
        return Response(b"too many connections\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
    if not answers_to(_host_named(request), listens, hosts):
        return Response(b"this page does not answer to that name\n", status=HTTPStatus.MISDIRECTED_REQUEST)
    return None


def answers_to(named: str, listens: str, hosts: Sequence[str] | None) -> bool:
    """True if a request for this host name is answered; unknown names are refused, against DNS rebinding.

    Another web site could point its own host name at this machine and let its visitor's browser read this page. It can
    do so with a name only: nobody can point a literal IP address elsewhere.
    """
    if _is_loopback(named):
        return True
    if hosts is None:
        return not _is_loopback(listens)
    return named.lower() in {host.lower() for host in hosts} or (
        _address(named) is not None and not _is_loopback(listens)
    )


def _host_named(request: Request) -> str:
    named = request.headers.get("host", "localhost")
    if named.startswith("["):
        return named[1:].partition("]")[0]
    return named.rpartition(":")[0] or named


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address in place of a name; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


async def _write(writer: asyncio.StreamWriter, response: Response, *, head_only: bool) -> None:
    status = response.status
    headers = {"Content-Type": response.content_type, **_HEADERS, "Connection": "close"}
    if isinstance(response.body, bytes):
        headers["Content-Length"] = str(len(response.body))
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    if not head_only:
        if isinstance(response.body, bytes):
            writer.write(response.body)
        else:
            async for piece in response.body:
                writer.write(piece)
                await _drained(writer)
    await _drained(writer)


async def _drained(writer: asyncio.StreamWriter) -> None:
    """Wait until what was written is on its way; a reader that stops reading loses its place to others."""
    async with asyncio.timeout(READ_SECONDS):
        await writer.drain()

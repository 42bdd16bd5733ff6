"""A real HTTP proxy on loopback that understands CONNECT alone, as between a hospital's network and the internet."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Mapping
from contextlib import suppress


class ConnectProxy:
    """Opens tunnels to the targets it knows by name, for those who give `login`; use as a context manager.

    `routes` leads names that nobody else can resolve to real addresses, so that who arrives came through here.
    `asked` has every request line and the answer to it.
    """

    def __init__(self, routes: Mapping[str, str], login: str = "", refusal: str = "") -> None:
        self._routes, self._refusal = routes, refusal
        self._login = base64.b64encode(login.encode()).decode()
        self.asked: list[tuple[str, str]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> ConnectProxy:
        self._thread.start()
        serving = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(10)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def allow(self, routes: Mapping[str, str]) -> None:
        """From now on refuse nothing, and know these targets."""
        self._routes, self._refusal = routes, ""

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, answer = head.split("\r\n", 1)[0], self._answer(head)
            self.asked.append((line, answer))
            writer.write(f"HTTP/1.1 {answer}\r\nVia: 1.1 test\r\n\r\n".encode())
            await writer.drain()
            if answer.startswith("200"):
                host, port = self._routes[line.split()[1]].rsplit(":", 1)
                far_reader, far_writer = await asyncio.open_connection(host, int(port))
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        writer.close()

    def _answer(self, head: str) -> str:
        method, target, _ = head.split("\r\n", 1)[0].split()
        if self._login and f"Basic {self._login}" not in head:
            return "407 Proxy Authentication Required"
        if self._refusal or method != "CONNECT":
            return self._refusal or "405 Method Not Allowed"
        return "200 Connection established" if target in self._routes else "502 Bad Gateway"


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    try:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    finally:
        sink.close()

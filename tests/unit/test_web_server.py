"""The small web server: it answers what it should, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dcfpca.errors import BadInput
from dcfpca.web_server import (
    LARGEST_REQUEST,
    Request,
    Response,
    WebServer,
    answers_to,
    not_found,
    serve_beside,
    split_address,
)


async def _hello(request: Request) -> Response:
    return Response(b"hello\n") if request.path == "/" else not_found()


@asynccontextmanager
async def _serving() -> AsyncIterator[tuple[str, int]]:
    server = WebServer("127.0.0.1:0", _hello)
    await server.start()
    host, port = split_address(server.url.removeprefix("http://").rstrip("/"))
    try:
        yield host, port
    finally:
        await server.stop()


async def _say(place: tuple[str, int], text: str) -> str:
    reader, writer = await asyncio.open_connection(*place)
    writer.write(text.encode("latin-1"))
    await writer.drain()
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


async def test_a_page_comes_with_headers_that_forbid_everything_foreign() -> None:
    async with _serving() as place:
        answer = await _say(place, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert answer.startswith("HTTP/1.1 200 OK\r\n")
    assert answer.endswith("\r\n\r\nhello\n")
    assert "default-src 'none'" in answer
    assert "X-Content-Type-Options: nosniff" in answer


async def test_head_gives_the_length_without_the_body() -> None:
    async with _serving() as place:
        answer = await _say(place, "HEAD / HTTP/1.1\r\nHost: localhost:1\r\n\r\n")
    assert "Content-Length: 6\r\n" in answer
    assert "hello" not in answer


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_nothing_can_be_changed(method: str) -> None:
    async with _serving() as place:
        answer = await _say(place, f"{method} / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith("HTTP/1.1 405 ")


async def test_another_sites_name_for_this_machine_is_not_answered() -> None:
    async with _serving() as place:
        answer = await _say(place, "GET / HTTP/1.1\r\nHost: rebound.example:80\r\n\r\n")
    assert answer.startswith("HTTP/1.1 421 ")
    assert "hello" not in answer


@pytest.mark.parametrize(
    ("named", "listens", "hosts", "answered"),
    [
        ("localhost", "0.0.0.0", (), True),
        ("10.0.0.7", "0.0.0.0", (), True),
        ("::1", "::", (), True),
        ("rebound.example", "0.0.0.0", (), False),
        ("rebound.example", "10.0.0.7", (), False),
        ("runs.example.org", "0.0.0.0", ("runs.example.org",), True),
        ("Runs.Example.org", "127.0.0.1", ("runs.example.org",), True),
        ("rebound.example", "127.0.0.1", ("runs.example.org",), False),
        ("10.0.0.7", "127.0.0.1", (), False),
        # Metrics, which have no list: any name where they are meant for the network, none where they are not.
        ("prometheus.example", "0.0.0.0", None, True),
        ("prometheus.example", "127.0.0.1", None, False),
    ],
)
def test_a_page_answers_to_the_names_it_was_given_wherever_it_listens(
    named: str, listens: str, hosts: tuple[str, ...] | None, answered: bool
) -> None:
    assert answers_to(named, listens, hosts) is answered


async def test_a_page_on_every_address_does_not_answer_to_a_name_it_was_not_given() -> None:
    server = WebServer("0.0.0.0:0", _hello, hosts=())
    await server.start()
    port = int(server.url.rstrip("/").rpartition(":")[2])
    answer = await _say(("127.0.0.1", port), "GET / HTTP/1.1\r\nHost: rebound.example\r\n\r\n")
    await server.stop()
    assert answer.startswith("HTTP/1.1 421 ")


@pytest.mark.parametrize(
    "text", ["nonsense\r\n\r\n", "GET noslash HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nX: " + "y" * LARGEST_REQUEST]
)
async def test_what_is_no_request_is_refused_and_the_server_lives_on(text: str) -> None:
    async with _serving() as place:
        assert (await _say(place, text)).startswith("HTTP/1.1 400 ")
        assert "hello" in await _say(place, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


async def test_an_unknown_path_is_not_found() -> None:
    async with _serving() as place:
        answer = await _say(place, "GET /../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answer.startswith("HTTP/1.1 404 ")


async def test_an_address_in_use_does_not_stop_the_work_beside() -> None:
    async with _serving() as (host, port):
        assert await serve_beside("metrics", f"{host}:{port}", _hello) is None
    assert await serve_beside("metrics", "", _hello) is None


async def test_stopping_ends_a_stream_that_would_go_on_for_ever() -> None:
    async def endless() -> AsyncIterator[bytes]:
        yield b"data: 1\n\n"
        await asyncio.Event().wait()

    async def stream(request: Request) -> Response:
        return Response(endless(), "text/event-stream")

    server = WebServer("127.0.0.1:0", stream)
    await server.start()
    reader, writer = await asyncio.open_connection(*split_address(server.url.removeprefix("http://").rstrip("/")))
    writer.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
    assert await reader.readuntil(b"\n\n") == b"data: 1\n\n"
    async with asyncio.timeout(10):
        await server.stop()
        assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("listen", ["localhost", ":80", "host:port", "host:70000"])
def test_what_is_no_address_is_told(listen: str) -> None:
    with pytest.raises(BadInput, match="is not an address to listen on"):
        split_address(listen)


async def test_a_reader_that_stops_reading_loses_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcfpca.web_server.READ_SECONDS", 0.2)
    ended = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                yield bytes(1 << 16)
                await asyncio.sleep(0)
        finally:
            ended.set()

    async def stream(_: Request) -> Response:
        return Response(endless())

    server = WebServer("127.0.0.1:0", stream)
    await server.start()
    _, writer = await asyncio.open_connection(*split_address(server.url.removeprefix("http://").rstrip("/")))
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(10):
            await ended.wait()
    finally:
        writer.close()
        await server.stop()

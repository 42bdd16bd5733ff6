"""HTTP routes of the dashboard: three static files, an event stream of the overview, and one per run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from importlib import resources

from aggregator.change_signal import Signal
from aggregator.dashboard.json_documents import Document, overview, run_news
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.trust import Trust
from dcfpca.web_server import Request, Response, not_found

LOOK_SECONDS = 2.0
"""How long the overview may be old where nothing signals a change, such as days left of a certificate."""
REST_SECONDS = 0.2
"""Least time between two messages of a stream: people do not read faster."""
REST_SHARE = 20
"""Looking must not cost the service its work: a stream rests this many times as long as its overview took to make."""
BEAT_SECONDS = 15.0
"""A sign of life on a silent stream, by which a broken one is noticed."""

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
}
_EVENTS = "text/event-stream; charset=utf-8"


class Dashboard:
    """Answers requests for the page."""

    def __init__(self, registry: RunRegistry, trust: Trust) -> None:
        self._registry, self._trust = registry, trust
        here = resources.files("aggregator.dashboard")
        self._files = {
            path: Response(here.joinpath("static", name).read_bytes(), kind) for path, (name, kind) in _FILES.items()
        }

    async def page(self, request: Request) -> Response:
        """The answer to one request."""
        if request.path in self._files:
            return self._files[request.path]
        if request.path == "/events":
            return Response(self._news(None), _EVENTS)
        if request.path.startswith("/events/"):
            runner = self._registry.runners.get(request.path.removeprefix("/events/"))
            return not_found() if runner is None else Response(self._news(runner), _EVENTS)
        return not_found()

    async def _news(self, runner: Runner | None) -> AsyncIterator[bytes]:
        """Yield the overview, and one run if asked for, now and after each change; every round is sent once.

        One stream carries both, because browsers open only six connections to a host, over all their tabs.
        """
        told, run_version, after, silent = b"", -1, -1, 0.0
        while True:
            seen = [(signal, signal.version) for signal in self._signals(runner)]
            began = time.monotonic()
            news = _message("overview", overview(self._registry, self._trust))
            rest = max(REST_SECONDS, REST_SHARE * (time.monotonic() - began))
            if news != told:
                told, silent = news, 0.0
                yield news
            if runner is not None and runner.changed.version != run_version:
                run_version, silent = runner.changed.version, 0.0
                document, after = await run_news(self._registry, runner, after)
                yield _message("run", document)
            if silent >= BEAT_SECONDS:
                silent = 0.0
                yield b": still here\n\n"
            await asyncio.sleep(rest)
            silent += rest + await _changed(seen, LOOK_SECONDS)

    def _signals(self, runner: Runner | None) -> list[Signal]:
        return [self._registry.stage, runner.changed] if runner else [self._registry.stage]


async def _changed(seen: list[tuple[Signal, int]], seconds: float) -> float:
    """Wait for the first change, at most `seconds`; returns 0 after a change, and `seconds` without one."""
    waiting = {asyncio.ensure_future(signal.wait(version)) for signal, version in seen}
    try:
        done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
    return 0.0 if done else seconds


def _message(event: str, document: Document) -> bytes:
    return f"event: {event}\ndata: {json.dumps(document, ensure_ascii=False, allow_nan=False)}\n\n".encode()

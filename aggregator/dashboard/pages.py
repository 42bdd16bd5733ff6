"""The paths of the dashboard: three files, a stream of the overview, and a stream per run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from importlib import resources

from aggregator.dashboard.documents import Document, overview, run_news
from aggregator.house import House
from aggregator.runner import Runner
from aggregator.signal import Signal
from aggregator.trust import Trust
from dcfpca.web import Request, Response, not_found

LOOK_SECONDS = 2.0
"""How long the overview may be old where nothing signals a change, such as days left of a certificate."""
REST_SECONDS = 0.2
"""Least time between two messages of a stream: people do not read faster."""
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

    def __init__(self, house: House, trust: Trust) -> None:
        self._house, self._trust = house, trust
        here = resources.files("aggregator.dashboard")
        self._files = {
            path: Response(here.joinpath("static", name).read_bytes(), kind) for path, (name, kind) in _FILES.items()
        }

    async def page(self, request: Request) -> Response:
        """The answer to one request."""
        if request.path in self._files:
            return self._files[request.path]
        if request.path == "/events":
            return Response(self._overviews(), _EVENTS)
        if request.path.startswith("/events/"):
            runner = self._house.runner(request.path.removeprefix("/events/"))
            return not_found() if runner is None else Response(self._run(runner), _EVENTS)
        return not_found()

    async def _overviews(self) -> AsyncIterator[bytes]:
        """The overview now and whenever it is another."""
        told, silent = b"", 0.0
        while True:
            seen = self._house.stage.version
            news = _message(overview(self._house, self._trust))
            if news != told:
                told, silent = news, 0.0
                yield news
            elif silent >= BEAT_SECONDS:
                silent = 0.0
                yield b": still here\n\n"
            await asyncio.sleep(REST_SECONDS)
            silent += REST_SECONDS if await _changed(self._house.stage, seen, LOOK_SECONDS) else LOOK_SECONDS

    async def _run(self, runner: Runner) -> AsyncIterator[bytes]:
        """One run now and whenever it changes; rounds are told once."""
        after = -1
        while True:
            seen = runner.changed.version
            document, after = await run_news(self._house, runner, after)
            yield _message(document)
            await asyncio.sleep(REST_SECONDS)
            while not await _changed(runner.changed, seen, BEAT_SECONDS):
                yield b": still here\n\n"


async def _changed(signal: Signal, seen: int, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await signal.wait(seen)
    except TimeoutError:
        return False
    return True


def _message(document: Document) -> bytes:
    return f"data: {json.dumps(document, ensure_ascii=False, allow_nan=False)}\n\n".encode()

"""The dashboard: static files, an event stream of the overview, and one per run.

Its documents hold only what the aggregator knows: sums, names, times and reasons.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from google.protobuf.message import Message

from aggregator.change_signal import Signal
from aggregator.operator_views import participant_view, rounds_held, run_view
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.trust import Trust
from dcfpca.pki.trust import whole_days
from dcfpca.privacy.statement import run_line, spec_document
from dcfpca.spec import RunSpec
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.version import __version__
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
            runner = await self._registry.find(request.path.removeprefix("/events/"))
            return not_found() if runner is None else Response(self._news(runner), _EVENTS)
        return not_found()

    async def _news(self, runner: Runner | None) -> AsyncIterator[bytes]:
        """Yield the overview, and one run if asked for, now and after each change; every round is sent once.

        One stream carries both, because browsers open only six connections to a host, over all their tabs.
        """
        sent, run_version, after, silent = b"", -1, -1, 0.0
        while True:
            signals = [self._registry.stage, runner.changed] if runner else [self._registry.stage]
            seen = [(signal, signal.version) for signal in signals]
            began = time.monotonic()
            news = _message("overview", overview(self._registry, self._trust))
            rest = max(REST_SECONDS, REST_SHARE * (time.monotonic() - began))
            if news != sent:
                sent, silent = news, 0.0
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


MOST_RUNS = 100

Document = dict[str, Any]


def overview(registry: RunRegistry, trust: Trust) -> Document:
    """Everything but the rounds: small enough to be sent whole at every change."""
    newest = [registry.runners[run_id] for run_id in registry.newest(MOST_RUNS) if run_id in registry.runners]
    mine, now = trust.credentials, datetime.fromtimestamp(registry.store.now(), UTC)
    return {
        "aggregator": {
            "name": mine.identity.name,
            "consortium": mine.identity.consortium,
            "version": __version__,
            "certificate_days": whole_days(mine.not_after, now),
        },
        "runs": [_summary(runner) for runner in newest],
        "runs_in_all": len(registry.runners) + len(registry.ended),
        "participants": [
            _participant(participant_view(registry, who, trust.is_revoked(who.name, who.fingerprint)))
            for _, who in sorted(registry.directory.records.items())
        ],
    }


async def run_news(registry: RunRegistry, runner: Runner, after_round: int) -> tuple[Document, int]:
    """The document of one run with its rounds after `after_round`, and the number of its last round."""
    view = await run_view(registry, runner, after_round)
    last = max([after_round, *(one.round for one in view.rounds)])
    document = _summary(runner) | {
        **_fields(view, "operator", "round_limit", "deadline_ms", "at_deadline", "awaited"),
        "spec_sha256": view.spec_sha256.hex(),
        "rows": runner.spec.rows,
        "tolerance": runner.spec.tolerance,
        "privacy": _privacy(runner.spec),
        "enrolled": [{"name": one.participant, "private": one.private} for one in view.enrolled],
        "refusals": [
            {"name": one.participant, "what": one.what, "reasons": list(one.reasons)} for one in view.refusals
        ],
        "waiting": [
            {"name": one.participant, "since_ms": one.since_ms, "connected": one.connected, "said": one.said}
            for one in view.waiting
        ],
        "complaints": [
            {"name": one.participant, "accused": one.accused, "sentence": one.sentence, "at_ms": one.at_ms}
            for one in view.complaints
        ],
        "absent": sorted(runner.run.absent | runner.run.silent),
        "percent": dict(view.percent),
        "verdict": _verdict(view),
        "rank_curve": [[one.rank, one.error, one.standard_error] for one in view.rank_curve],
        "rounds": [_round(one) for one in view.rounds],
    }
    return document, last


def _summary(runner: Runner) -> Document:
    run, spec = runner.run, runner.spec
    return {
        "run": run.run_id,
        "label": spec.label,
        "status": run.status.value,
        "reason": run.reason,
        "phase": run.phase,
        "round": run.attempt.ref.round if run.attempt else 0,
        "attempt": run.attempt.ref.attempt if run.attempt else 0,
        "rounds_held": rounds_held(runner.round_sum.consensus),
        "method": spec.method,
        "aggregation": spec.aggregation,
        "sites": len(run.cohort) or len(run.enrolled),
        "refused": len(run.refusals),
        "created_ms": int(run.created_at * 1000),
        "ended_ms": int(run.ended_at * 1000),
    }


def _privacy(spec: RunSpec) -> str:
    """What the run spends of differential privacy at every site, in one line; empty where it has none."""
    document = spec_document({"privacy": spec.privacy.model_dump() if spec.privacy else None})
    return run_line(document) if document else ""


def _participant(view: pb.ParticipantView) -> Document:
    seen = view.last_seen_ms if view.state != "connected" else 0
    return _fields(view, "name", "state", "software", "certificate_days", "runs") | {"last_seen_ms": seen}


def _verdict(view: pb.RunView) -> Document | None:
    if not view.HasField("verdict"):
        return None
    return _fields(view.verdict, "sound", "sentence", "reasons", "advice", "notes")


def _round(view: pb.RoundView) -> Document:
    document = _fields(view, "round", "attempt", "seconds", "change", "rank", "noise", "dropouts", "singular_values")
    return document | {"received": view.bytes_received, "sent": view.bytes_sent, "survivors": len(view.survivors)}


def _fields(message: Message, *names: str) -> Document:
    """These fields of a message, as JSON takes them: None for numbers that are not finite."""
    return {name: _plain(getattr(message, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int) else [_plain(one) for one in value]

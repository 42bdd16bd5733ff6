"""JSON documents for the dashboard. They hold only what the aggregator knows: sums, names, times and reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from aggregator.operator_views import participant_view, rounds_held, run_view
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.trust import Trust
from dcfpca.pki.validity import whole_days
from dcfpca.privacy.statement import run_line, spec_document
from dcfpca.spec import RunSpec
from dcfpca.v1 import admin_pb2 as pb
from dcfpca.version import __version__

MOST_RUNS = 100

Document = dict[str, Any]


def overview(registry: RunRegistry, trust: Trust) -> Document:
    """Everything but the rounds: small enough to be sent whole at every change."""
    newest = list(reversed(registry.runners.values()))[:MOST_RUNS]
    mine, now = trust.credentials, datetime.fromtimestamp(registry.store.now(), UTC)
    return {
        "aggregator": {
            "name": mine.identity.name,
            "consortium": mine.identity.consortium,
            "version": __version__,
            "certificate_days": whole_days(mine.not_after, now),
        },
        "runs": [_summary(runner) for runner in newest],
        "runs_in_all": len(registry.runners),
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
        "operator": view.operator,
        "spec_sha256": view.spec_sha256.hex(),
        "rows": runner.spec.rows,
        "round_limit": view.round_limit,
        "deadline_ms": view.deadline_ms,
        "at_deadline": view.at_deadline,
        "tolerance": runner.spec.tolerance,
        "privacy": _privacy(runner.spec),
        "enrolled": [{"name": one.participant, "private": one.private} for one in view.enrolled],
        "refusals": [
            {"name": one.participant, "what": one.what, "reasons": list(one.reasons)} for one in view.refusals
        ],
        "awaited": list(view.awaited),
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
        "rounds_held": rounds_held(runner.consensus),
        "method": spec.method,
        "aggregation": spec.aggregation,
        "waits": spec.waits,
        "sites": len(run.cohort) or len(run.enrolled),
        "refused": len(run.refusals),
        "created_ms": int(run.created_at * 1000),
        "ended_ms": int(run.ended_at * 1000),
    }


def _privacy(spec: RunSpec) -> str:
    """What the run spends of differential privacy at every site, in one line; empty where it has none."""
    told = spec_document({"privacy": spec.privacy.model_dump() if spec.privacy else None})
    return run_line(told) if told else ""


def _participant(view: pb.ParticipantView) -> Document:
    return {
        "name": view.name,
        "state": view.state,
        "software": view.software,
        "last_seen_ms": view.last_seen_ms if view.state != "connected" else 0,
        "certificate_days": view.certificate_days,
        "runs": list(view.runs),
    }


def _verdict(view: pb.RunView) -> Document | None:
    told = view.verdict
    if not view.HasField("verdict"):
        return None
    return {
        "sound": told.sound,
        "sentence": told.sentence,
        "reasons": list(told.reasons),
        "advice": told.advice,
        "notes": list(told.notes),
    }


def _round(view: pb.RoundView) -> Document:
    return {
        "round": view.round,
        "attempt": view.attempt,
        "seconds": view.seconds,
        "change": _finite(view.change),
        "rank": view.rank,
        "noise": _finite(view.noise),
        "received": view.bytes_received,
        "sent": view.bytes_sent,
        "survivors": len(view.survivors),
        "dropouts": list(view.dropouts),
        "singular_values": _finite_all(view.singular_values),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _finite_all(values: Sequence[float]) -> list[float | None]:
    return [_finite(value) for value in values]

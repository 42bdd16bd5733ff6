"""Runs and participants as operators see them."""

from __future__ import annotations

from aggregator.run import exports, phases, waiting
from aggregator.run.phases import awaited
from aggregator.run.records import StoredComplaint
from aggregator.run.state import Export, Run, Status
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.store.participants import ParticipantRecord
from aggregator.store.store import HeldRun
from aggregator.verdict_view import rank_curve_view, verdict_view
from dcfpca.rpca.method import Consensus
from dcfpca.spec import RunSpec
from dcfpca.suggestions import listed
from dcfpca.v1 import admin_pb2 as pb


async def run_view(registry: RunRegistry, runner: Runner, after_round: int = -1, *, rounds: bool = True) -> pb.RunView:
    """The run now, with its finished rounds after `after_round`."""
    run = runner.run
    views = await registry.store.do(lambda store: store.round_views(run.run_id, after_round)) if rounds else []
    verdict, curve = await verdict_view(runner), await rank_curve_view(runner) if rounds else []
    return pb.RunView(
        run_id=run.run_id,
        status=run.status.value,
        reason=run.reason,
        spec=runner.spec_bytes,
        spec_sha256=run.spec_sha256,
        created_ms=int(run.created_at * 1000),
        ended_ms=int(run.ended_at * 1000),
        round=run.attempt.ref.round if run.attempt else 0,
        attempt=run.attempt.ref.attempt if run.attempt else 0,
        phase=run.phase,
        enrolled=[_enrolled(run, name) for name in sorted(run.enrolled)],
        refusals=_refusals(run),
        awaited=_awaited(registry, runner),
        rounds=[pb.RoundView.FromString(view) for view in views],
        percent=dict(runner.percent),
        operator=run.operator,
        verdict=verdict,
        rank_curve=curve,
        waiting=_waiting(registry, run),
        complaints=[_complaint(one) for one in run.complaints],
        round_limit=runner.spec.last_round,
        deadline_ms=int((phases.deadline(runner.spec, run) or 0) * 1000),
        at_deadline=_at_deadline(runner.spec, run),
        rounds_held=rounds_held(runner.consensus),
    )


def rounds_held(consensus: Consensus) -> int:
    """The number of the last finished round, as every display counts; round 0 prepares and is not counted."""
    return consensus.round if consensus.outcome else max(consensus.round - 1, 0)


def _at_deadline(spec: RunSpec, run: Run) -> str:
    """What the run does at its deadline; empty where nothing is due."""
    if phases.deadline(spec, run) is None:
        return ""
    if run.status is Status.ENROLLING:
        return "enrolment closes"
    if not spec.waits:
        return "the round goes on without those who have not answered, or is tried again"
    late = [name for name in waiting.missing(run) if run.fixed_cohort and name in run.fixed_cohort.waiting]
    return f"the run pauses unless it hears from {listed(late)}" if late else "who has not answered counts as late"


def _waiting(registry: RunRegistry, run: Run) -> list[pb.WaitingView]:
    since = run.fixed_cohort.waiting if run.fixed_cohort else {}
    return [
        pb.WaitingView(
            participant=name,
            since_ms=int(since[name] * 1000),
            connected=registry.directory.presence.is_connected(name),
            said=waiting.last_said(run, name),
        )
        for name in waiting.missing(run)
        if name in since
    ]


def _complaint(one: StoredComplaint) -> pb.ComplaintView:
    return pb.ComplaintView(
        participant=one.participant,
        accused=one.accused,
        error=one.error,
        sentence=one.sentence,
        at_ms=int(one.at * 1000),
    )


def held_view(held: HeldRun) -> pb.RunView:
    """A run that cannot be served, as far as it is known; its reason says why and what to do."""
    return pb.RunView(
        run_id=held.run_id,
        status=held.status,
        reason=f"{held.reason}; {held.hint}",
        spec=held.spec_bytes,
        created_ms=int(held.created_at * 1000),
        ended_ms=int(held.ended_at * 1000),
    )


def export_view(run: Run, export: Export) -> pb.ExportView:
    """The files received, the refusals, and who has not answered."""
    files = [
        pb.ExportedFile(participant=name, artifact=artifact, size=size, sha256=sha256)
        for name, answer in sorted(export.answers.items())
        for artifact, size, sha256 in answer.files
    ]
    return pb.ExportView(
        run_id=run.run_id,
        export_id=export.export_id,
        files=files,
        refusals=_export_refusals(export),
        awaited=exports.awaited(run),
    )


def participant_view(registry: RunRegistry, who: ParticipantRecord, revoked: bool) -> pb.ParticipantView:
    """One participant now."""
    connected = registry.directory.presence.is_connected(who.name)
    runs = [r.run.run_id for r in registry.runners.values() if not r.run.status.over and who.name in r.run.enrolled]
    return pb.ParticipantView(
        name=who.name,
        state="revoked" if revoked else "connected" if connected else "away",
        software=who.software,
        last_seen_ms=int((registry.store.now() if connected else who.last_seen) * 1000),
        certificate_days=registry.directory.certificate_days(who.name),
        fingerprint=who.fingerprint,
        rows=who.rows,
        runs=runs,
    )


def _enrolled(run: Run, name: str) -> pb.EnrolledView:
    consent = run.enrolled[name]
    return pb.EnrolledView(
        participant=name, private=consent.private, signature=consent.signature, fingerprint=consent.fingerprint
    )


def _refusals(run: Run) -> list[pb.Refusal]:
    enrolment = [
        pb.Refusal(participant=name, what="enrolment", reasons=reasons)
        for name, reasons in sorted(run.refusals.items())
    ]
    return enrolment + (_export_refusals(run.export) if run.export else [])


def _export_refusals(export: Export) -> list[pb.Refusal]:
    return [
        pb.Refusal(participant=name, what="export", reasons=[answer.refusal])
        for name, answer in sorted(export.answers.items())
        if answer.refusal
    ]


def _awaited(registry: RunRegistry, runner: Runner) -> list[str]:
    run = runner.run
    if run.status is not Status.ENROLLING:
        return list(awaited(run))
    invited = set(runner.spec.participants) or set(registry.directory.presence.names())
    return sorted(invited - run.enrolled.keys() - run.refusals.keys())

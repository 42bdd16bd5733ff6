"""Runs, their verdicts and participants as operators see them."""

from __future__ import annotations

import shlex

from aggregator.run import exports, waiting
from aggregator.run.rules import RoundRules, awaited, deadline
from aggregator.run.state import Export, Run, Status, StoredComplaint
from aggregator.run_registry import RunRegistry
from aggregator.runner import Runner
from aggregator.store import run_rows
from aggregator.store.participants import ParticipantRecord
from aggregator.store.run_rows import HeldRun
from dcfpca.errors import DcfpcaError
from dcfpca.rpca.method import Consensus, Outcome, Verdict
from dcfpca.v1 import admin_pb2 as pb


async def run_view(registry: RunRegistry, runner: Runner, after_round: int = -1, *, rounds: bool = True) -> pb.RunView:
    """The run now, with its finished rounds after `after_round`."""
    run = runner.run
    views = await _round_views(registry, run.run_id, after_round) if rounds else []
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
        rounds=views,
        percent=dict(runner.percent),
        operator=run.operator,
        verdict=verdict,
        rank_curve=curve,
        waiting=_waiting(registry, runner),
        complaints=[_complaint(one) for one in run.complaints],
        round_limit=runner.spec.last_round,
        deadline_ms=int((deadline(runner.rules, run) or 0) * 1000),
        at_deadline=_at_deadline(runner.rules, run),
        rounds_held=rounds_held(runner.round_sum.consensus),
    )


async def _round_views(registry: RunRegistry, run_id: str, after: int = -1) -> list[pb.RoundView]:
    stored = await registry.store.do(lambda store: run_rows.round_views(store.connection, run_id, after))
    return [pb.RoundView.FromString(view) for view in stored]


def rounds_held(consensus: Consensus) -> int:
    """The number of the last finished round, as every display counts; round 0 prepares and is not counted."""
    return consensus.round if consensus.outcome else max(consensus.round - 1, 0)


def _at_deadline(rules: RoundRules, run: Run) -> str:
    """What the run does at its deadline; empty where nothing is due."""
    if deadline(rules, run) is None:
        return ""
    return "enrolment closes" if run.status is Status.ENROLLING else rules.at_deadline(run)


def _waiting(registry: RunRegistry, runner: Runner) -> list[pb.WaitingView]:
    return [
        pb.WaitingView(
            participant=name,
            since_ms=int(at * 1000),
            connected=registry.directory.is_connected(name),
            said=waiting.last_said(runner.run, name),
        )
        for name, at in runner.rules.waiting(runner.run).items()
    ]


def _complaint(one: StoredComplaint) -> pb.ComplaintView:
    return pb.ComplaintView(
        participant=one.participant,
        accused=one.accused,
        error=one.error,
        sentence=one.sentence,
        at_ms=int(one.at * 1000),
    )


async def held_view(registry: RunRegistry, held: HeldRun, *, rounds: bool = True) -> pb.RunView:
    """A run that cannot be served, as far as it is known; its reason says why and what to do."""
    readable = rounds and held.enrolled
    views = await _round_views(registry, held.run_id) if readable else []
    return pb.RunView(
        run_id=held.run_id,
        status=held.status,
        reason=f"{held.reason}; {held.hint}",
        spec=held.spec_bytes,
        created_ms=int(held.created_at * 1000),
        ended_ms=int(held.ended_at * 1000),
        enrolled=[pb.EnrolledView(participant=name) for name in held.enrolled],
        rounds=views,
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
    connected = registry.directory.is_connected(who.name)
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
        asks=connected and who.name in registry.directory.asking,
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
        return list(awaited(runner.rules, run))
    return sorted(registry.expected(runner) - run.enrolled.keys() - run.refusals.keys())


UNJUDGED = "The run ended without the closing rounds that judge an answer"


async def verdict_view(runner: Runner) -> pb.VerdictView | None:
    """The verdict on a finished run; None while it is not finished.

    An answer that cannot be read from the store is not sound: the list of runs must not fail for one of them.
    """
    if runner.run.status is not Status.FINISHED:
        return None
    try:
        verdict = (await runner.final.judgement()).verdict
    except DcfpcaError as error:
        return pb.VerdictView(sentence=f"The answer cannot be read: {error}.", reasons=[str(error)], advice=error.hint)
    if verdict is None:
        reason = runner.run.reason or "no closing round was held"
        return pb.VerdictView(sentence=f"{UNJUDGED}: {reason}.", reasons=[reason], advice=_unjudged(runner.run.run_id))
    return pb.VerdictView(
        sound=verdict.sound,
        sentence=verdict.sentence,
        reasons=verdict.reasons,
        advice=_advice(runner, verdict),
        notes=verdict.notes,
    )


async def rank_curve_view(runner: Runner) -> list[pb.RankErrorView]:
    """The error on hidden entries by rank; empty where the run has not come so far, or its method has none."""
    if runner.run.status is not Status.FINISHED:
        return []
    try:
        curve = (await runner.final.judgement()).rank_curve
    except DcfpcaError:
        return []
    if curve is None:
        return []
    return [
        pb.RankErrorView(rank=int(rank), error=float(error), standard_error=float(deviation))
        for rank, error, deviation in curve
    ]


def _unjudged(run_id: str) -> str:
    """What an operator does about a run whose flags were not judged."""
    again = f"for flags with a known rate of false alarms, dcfpca run start --warm-start {run_id}"
    return f"each site: dcfpca-participant results has L and S, not judged; {again}"


def _advice(runner: Runner, verdict: Verdict) -> str:
    """What an operator does next, as commands."""
    run_id, changes = runner.run.run_id, verdict.changes
    if verdict.sound:
        return f"dcfpca run report {run_id} --out report.html; each site: dcfpca-participant results"
    if runner.run.reason == Outcome.OUT_OF_ROUNDS.value:
        changes = (*changes, f"rounds={2 * runner.spec.rounds}")
    if not changes:
        return f"each site: dcfpca-participant results; dcfpca run report {run_id} --out report.html"
    options = "".join(f" --set {shlex.quote(change)}" for change in changes)
    return f"dcfpca run restart {run_id}{options}; results are kept meanwhile"

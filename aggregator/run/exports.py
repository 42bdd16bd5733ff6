"""Exports: an operator requests reconstructions, each participant answers with its files or a refusal."""

from __future__ import annotations

from dataclasses import replace

from aggregator.run.attempts import ACCEPTED, DUPLICATE, OUTSIDER, Reply, Step
from aggregator.run.events import ExportRefused, ExportRequested, ExportsLost, FileExported
from aggregator.run.state import Export, ExportAnswer, Run, Status
from dcfpca.wire.constants import ARTIFACTS
from dcfpca.wire.receipt import Fate


def request(run: Run, event: ExportRequested) -> Run:
    """Request reconstructions of the whole cohort; a repeated request continues the first one."""
    if run.status is not Status.FINISHED or run.export is not None:
        return run
    return replace(run, export=Export(export_id=event.export_id))


def awaited(run: Run) -> tuple[str, ...]:
    """The participants that have neither sent every artifact nor refused."""
    return tuple(name for name in run.cohort if run.export and not run.export.is_answered_by(name))


def answer(run: Run, event: FileExported | ExportRefused) -> Step:
    """Record a file or a refusal."""
    refused = _refusal_of(run, event)
    if refused or run.export is None:
        return run, (refused or DUPLICATE,)
    before = run.export.answers.get(event.participant, ExportAnswer())
    if isinstance(event, ExportRefused):
        after = replace(before, refusal=event.reason)
    else:
        after = replace(before, files=(*before.files, (event.artifact, event.size, event.sha256)))
    answers = {**run.export.answers, event.participant: after}
    return replace(run, export=replace(run.export, answers=answers)), (ACCEPTED,)


def lost(run: Run, event: ExportsLost) -> Run:
    """Await the files of these participants again; a refusal stands."""
    if run.export is None:
        return run
    kept = {name: answer for name, answer in run.export.answers.items() if name not in event.participants}
    return run if kept == run.export.answers else replace(run, export=replace(run.export, answers=kept))


def _refusal_of(run: Run, event: FileExported | ExportRefused) -> Reply | None:
    if event.participant not in run.cohort:
        return OUTSIDER
    if run.export is None or run.export.export_id != event.export_id:
        return Reply(Fate.REJECTED, "no reconstruction was asked for under this export id")
    before = run.export.answers.get(event.participant, ExportAnswer())
    if isinstance(event, ExportRefused):
        return DUPLICATE if before.refusal else None
    if before.refusal or any(name == event.artifact for name, _, _ in before.files):
        return DUPLICATE
    if run.enrolled[event.participant].private:
        return Reply(Fate.REJECTED, "this participant enrolled as private; its reconstruction is not taken")
    return None if event.artifact in ARTIFACTS else Reply(Fate.REJECTED, f"{event.artifact} is not an artifact")

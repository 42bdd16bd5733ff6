"""Runs and participants as JSON documents, tables and sentences. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from dcfpca.errors import did_you_mean
from dcfpca.operator.run_stream import OVER
from dcfpca.pki.trust import SOON_DAYS
from dcfpca.privacy.statement import run_line, spec_document
from dcfpca.text.console import Json, add_row, figure, moment, plain, size, span, table
from dcfpca.v1 import admin_pb2 as pb

_COLOURS = {
    "finished": "green",
    "running": "cyan",
    "enrolling": "cyan",
    "paused": "yellow",
    "failed": "red",
    "aborted": "red",
    "damaged": "red",
    "connected": "green",
    "away": "yellow",
    "revoked": "red",
}


_TIMED = ("seconds", "awaited_seconds", "bytes_received", "bytes_sent")


def message_fields(message: Any, names: str) -> dict[str, Json]:
    """These fields of a message: repeated ones as lists, bytes in hex, and milliseconds `x_ms` as the time `x`."""
    found: dict[str, Json] = {}
    for name in names.split():
        value = getattr(message, name)
        if name.endswith("_ms"):
            found[name.removesuffix("_ms")] = moment(value)
        elif isinstance(value, bytes):
            found[name] = value.hex()
        else:
            found[name] = value if isinstance(value, str | int | float) else list(value)
    return found


def run_document(view: pb.RunView) -> dict[str, Json]:
    """A run with its rounds."""
    waiting, complaint = "participant since_ms connected said", "participant accused error sentence at_ms"
    round = (
        "round stage attempt seconds awaited_seconds change rank noise threshold bytes_received bytes_sent survivors"
        " dropouts singular_values"
    )
    return run_summary(view) | {
        "spec": json.loads(view.spec or b"{}"),
        "privacy": spec_document(json.loads(view.spec or b"{}")),
        "spec_sha256": view.spec_sha256.hex(),
        "enrolled": [message_fields(one, "participant private signature fingerprint") for one in view.enrolled],
        "refusals": [message_fields(one, "participant what reasons") for one in view.refusals],
        "awaited": list(view.awaited),
        "waiting": [message_fields(one, waiting) for one in view.waiting],
        "complaints": [message_fields(one, complaint) for one in view.complaints],
        "percent": dict(view.percent),
        "rounds": [message_fields(one, round) for one in view.rounds],
        "timing": stage_timing(view.rounds),
        "rank_curve": [message_fields(one, "rank error standard_error") for one in view.rank_curve],
    }


def run_summary(view: pb.RunView) -> dict[str, Json]:
    """A run without its rounds, spec and participants; the verdict is None until the run has finished."""
    where = "round rounds_held round_limit attempt phase deadline_ms at_deadline"
    verdict = message_fields(view.verdict, "sound sentence reasons advice notes") if view.HasField("verdict") else None
    return message_fields(view, f"run_id status reason {where} created_ms ended_ms operator") | {"verdict": verdict}


def run_listing(view: pb.RunView) -> dict[str, Json]:
    """A run as an entry of a listing."""
    spec = json.loads(view.spec or b"{}")
    return run_summary(view) | {
        "label": spec.get("label", ""),
        "method": spec.get("method", ""),
        "aggregation": spec.get("aggregation", ""),
        "enrolled": [one.participant for one in view.enrolled],
    }


def waiting_line(one: pb.WaitingView) -> str:
    """For whom a run waits, since when, and what the site said last."""
    state = "connected" if one.connected else "away"
    said = f'; it said: "{one.said}"' if one.said else ""
    return f"{one.participant} since {moment(one.since_ms)} ({state}){said}"


def complaint_line(one: pb.ComplaintView) -> str:
    """Who complained of what, and of whom."""
    about = f" about {one.accused}" if one.accused else ""
    return f"{one.participant}{about}: {one.sentence} ({one.error}, {moment(one.at_ms)})"


def participant_document(one: pb.ParticipantView) -> dict[str, Json]:
    """A participant, as operators see it."""
    return message_fields(one, "name state software last_seen_ms certificate_days fingerprint rows runs asks")


def runs_table(runs: Iterable[pb.RunView]) -> Table:
    """All runs, one per row."""
    made = table("run", "status", "#rounds", "method", "aggregation", "#sites", "created", "label")
    for view in runs:
        line = run_listing(view)
        add_row(
            made,
            view.run_id,
            coloured(view.status),
            str(view.rounds_held) if view.round_limit else "–",
            str(line["method"]),
            str(line["aggregation"]),
            str(len(view.enrolled)),
            moment(view.created_ms),
            str(line["label"]),
        )
    return made


def participants_table(participants: Iterable[pb.ParticipantView]) -> Table:
    """All participants, one per row."""
    made = table("participant", "state", "last seen", "#features", "#certificate days", "software", "runs")
    for one in participants:
        days = Text(str(one.certificate_days), style="red" if one.certificate_days < SOON_DAYS else "")
        rows = str(one.rows) if one.rows else "–"
        runs = ", ".join(one.runs) or "–"
        add_row(made, one.name, coloured(one.state), moment(one.last_seen_ms), rows, days, one.software, runs)
    return made


def run_picture(view: pb.RunView, *, timing: bool = False) -> RenderableType:
    """One run: its spec, participants and rounds, or what the rounds of each stage took."""
    shown = timing_table(view.rounds) if timing else _rounds_table(view.rounds)
    return Group(_facts(view), "", *([shown] if view.rounds else ["no round has finished yet"]))


def stage_timing(rounds: Sequence[pb.RoundView]) -> list[dict[str, Json]]:
    """What the rounds of each stage took, stages in the order in which they began; `awaited_seconds` of them, the
    aggregator waited for updates, and the others it summed and advanced."""
    found: dict[str, Any] = {}
    for one in rounds:
        sums = found.setdefault(one.stage, {"stage": one.stage, "rounds": 0, **dict.fromkeys(_TIMED, 0)})
        sums["rounds"] += 1
        for name in _TIMED:
            sums[name] += getattr(one, name)
    return list(found.values())


def timing_table(rounds: Sequence[pb.RoundView]) -> Table:
    """`stage_timing`, with bytes of all sites together."""
    made = table("stage", "#rounds", "#time", "#awaiting sites", "#received", "#sent")
    for one in stage_timing(rounds):
        line: Any = one
        times = [f"{line[name]:.2f} s" for name in ("seconds", "awaited_seconds")]
        sizes = size(line["bytes_received"]), size(line["bytes_sent"])
        add_row(made, line["stage"] or "–", str(line["rounds"]), *times, *sizes)
    return made


def _facts(view: pb.RunView) -> Table:
    spec = json.loads(view.spec or b"{}")
    bound = f"rank at most {spec['max_rank']}" if spec.get("max_rank") else "the rank is found"
    rank = f"rank {spec['rank']}" if spec.get("rank") else bound
    facts: dict[str, str | Text | None] = {
        "run": view.run_id,
        "status": coloured(view.status) + Text(plain(f": {view.reason}") if view.reason else ""),
        "verdict": verdict_text(view),
        "label": spec.get("label") or None,
        "method": f"{spec.get('method')}, {spec.get('rows')} features, {rank}, {spec.get('aggregation')} aggregation",
        "privacy": run_line(private) if (private := spec_document(spec)) else None,
        "spec": view.spec_sha256.hex(),
        "proposed": f"{moment(view.created_ms)} by {view.operator}" if view.operator else moment(view.created_ms),
        "ended": moment(view.ended_ms),
        # Of a run that other software wrote neither is known.
        "rounds": f"{view.rounds_held} held, of at most {view.round_limit}" if view.round_limit else None,
        "now": None
        if view.status in OVER or not view.round_limit
        else f"round {view.round}, attempt {view.attempt}, {view.phase}",
        "deadline": f"{moment(view.deadline_ms)}: {view.at_deadline}" if view.deadline_ms else None,
        "enrolled": ", ".join(one.participant + (" (private)" if one.private else "") for one in view.enrolled),
        "awaited": ", ".join(view.awaited) or None,
    }
    made = Table(box=None, pad_edge=False, show_header=False)
    for key, value in facts.items():
        if value:
            add_row(made, Text(key, style="bold"), value)
    for note in view.verdict.notes:
        add_row(made, Text("note", style="bold"), plain(note))
    for refusal in view.refusals:
        add_row(made, Text("refused", style="bold"), refusal_line(refusal))
    for waiting in view.waiting:
        add_row(made, Text("waiting for", style="bold"), waiting_line(waiting))
    for complaint in view.complaints:
        add_row(made, Text("complaint", style="bold"), complaint_line(complaint))
    return made


def verdict_text(view: pb.RunView) -> Text | None:
    """The verdict in one line, green or yellow; None until the run has finished."""
    if not view.HasField("verdict"):
        return None
    return Text(plain(view.verdict.sentence), style="green" if view.verdict.sound else "yellow")


def refusal_line(refusal: pb.Refusal) -> str:
    """One refusal as a line: participant, subject and reasons."""
    return f"{refusal.participant} ({refusal.what}): {'; '.join(refusal.reasons)}"


def round_rows(rounds: Iterable[pb.RoundView]) -> Iterator[tuple[str, ...]]:
    """The headings of a table of rounds, then a line for each; headings of numbers begin with `#`."""
    yield "#round", "#attempt", "#change", "#rank", "#noise", "#time", "#received", "#sent", "#sites", "missing"
    for one in rounds:
        sizes = size(one.bytes_received), size(one.bytes_sent)
        yield (
            *(str(one.round), str(one.attempt), figure(one.change), str(one.rank), figure(one.noise)),
            *(span(one.seconds), *sizes, str(len(one.survivors)), ", ".join(one.dropouts) or "–"),
        )


def _rounds_table(rounds: Iterable[pb.RoundView]) -> Table:
    headings, *lines = round_rows(rounds)
    made = table(*headings)
    for line in lines:
        add_row(made, *line)
    return made


def coloured(word: str) -> Text:
    """A status or state in its colour."""
    return Text(word, style=_COLOURS.get(word, ""))


def unknown_names(wanted: Sequence[str], known: Sequence[pb.ParticipantView]) -> Iterator[str]:
    """A sentence for every participant of the spec that the aggregator has never seen."""
    names = [one.name for one in known]
    for name in wanted:
        if name not in names:
            sentence = f"{name} has never connected to this aggregator"
            suggestion = did_you_mean(name, names)
            yield f"{sentence}; {suggestion}" if suggestion else sentence


def enrolment_lines(
    view: pb.RunView, known: Sequence[pb.ParticipantView], refusals_shown: bool = False
) -> Iterator[str]:
    """Who has enrolled, and for everyone else that the spec names (or that is known, if it names none) why not.

    Where the refusals were shown before, sites that refused are named without their reasons.
    """
    states = {one.name: one.state for one in known}
    refusals = {one.participant: "; ".join(one.reasons) for one in view.refusals if one.what == "enrolment"}
    # A site that sees the cohort may withdraw after it has enrolled.
    enrolled = [one.participant for one in view.enrolled if one.participant not in refusals]
    yield f"enrolled: {', '.join(enrolled) or 'nobody'}"
    for name in json.loads(view.spec or b"{}").get("participants") or sorted(states):
        if name not in enrolled:
            why = "refused" if refusals_shown and name in refusals else _why(name, refusals, states)
            yield f"not enrolled: {name} ({why})"


def reason_without_refusals(view: pb.RunView) -> str:
    """The run's reason for readers who have seen the refusals it quotes: who refused, without their reasons."""
    reason = view.reason
    for one in view.refusals:
        reason = reason.replace(f"{one.participant} refused: {'; '.join(one.reasons)}", f"{one.participant} refused")
    return reason


def _why(name: str, refusals: dict[str, str], states: dict[str, str]) -> str:
    if name in refusals:
        return f"refused: {refusals[name]}"
    match states.get(name):
        case None:
            return "never seen by this aggregator"
        case "connected":
            return "connected, but it has not answered; a person there may have to approve the run"
        case "revoked":
            return "turned away: its certificate is revoked"
        case _:
            return "not connected"

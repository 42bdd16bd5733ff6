"""The report of a run, from what operators may see; it contains nothing private to a site."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dcfpca.errors import listed
from dcfpca.operator.run_stream import OVER
from dcfpca.privacy.statement import run_line, spec_document
from dcfpca.report import svg
from dcfpca.report.page import escape, figure, figures, folded, page, paragraph, section, status_badge, table
from dcfpca.report.svg import Mark, Series, Titles
from dcfpca.text.console import figure as number
from dcfpca.text.console import moment, size, span
from dcfpca.text.run_views import round_rows
from dcfpca.v1 import admin_pb2 as pb

MOST_NAMES = 40
"""Sites that are named before a list is cut short or folded away."""

_CHOSEN = "label method rows features rank max_rank scaling missing flag_rate rounds tolerance participants quorum"
_EXCHANGE = "aggregation export round_seconds patience"
PLAIN_KEYS = frozenset(f"{_CHOSEN} {_EXCHANGE}".split())
"""Keys of a spec that people choose; the others are folded away."""


def run_report(view: pb.RunView, written: str) -> str:
    """The HTML of a run with all its rounds; `written` is the time to show."""
    spec = json.loads(view.spec or b"{}")
    name = spec.get("label") or view.run_id
    parts = [_head(view, spec, name, written), *_awaited(view)]
    if view.rounds:
        parts += [
            *([_rank_curve(view, spec)] if view.rank_curve else []),
            _singular_values(view.rounds[-1], spec),
            _expected_errors(view.rounds) if spec.get("privacy") else _convergence(view, spec),
            _times(view.rounds),
            _bytes(view.rounds, spec),
            section("Every round", paragraph(_missed(view.rounds)), folded("show the table", _rounds(view.rounds))),
        ]
    else:
        parts.append(paragraph("No round is finished yet."))
    return page(f"Run {name}", [*parts, _people(view), _spec(view, spec)])


def _head(view: pb.RunView, spec: Mapping[str, Any], name: str, written: str) -> str:
    last = view.rounds[-1] if view.rounds else pb.RoundView(change=math.nan, noise=math.nan)
    numbers = [
        ("rank found" if not spec.get("rank") else "rank", str(last.rank) if view.rounds else "–"),
        ("rounds", str(view.rounds_held)),
        ("expected error" if spec.get("privacy") else "last change", number(last.change)),
        ("noise", number(last.noise)),
        ("participants", str(len(view.enrolled))),
        ("time in rounds", span(sum(one.seconds for one in view.rounds))),
        ("from the sites", size(sum(one.bytes_received for one in view.rounds))),
        ("to the sites", size(sum(one.bytes_sent for one in view.rounds))),
    ]
    ended = f", ended {moment(view.ended_ms)}" if view.ended_ms else ""
    return "\n".join(
        [
            f"<header><h1>{escape(name)}</h1><p>{status_badge(view.status)}</p>",
            *_verdict(view),
            paragraph(f"Run {view.run_id}, proposed {moment(view.created_ms)} by {view.operator}{ended}.", "note"),
            figures(numbers),
            paragraph(f"Written {written}, from what operators may see: nothing private to a site.", "note"),
            "</header>",
        ]
    )


def _verdict(view: pb.RunView) -> list[str]:
    """What was found, why it may not be trusted, and what to do next; before the end, why the run is where it is."""
    reason = [paragraph(view.reason[:1].upper() + view.reason[1:] + ".", "note")] if view.reason else []
    if not view.HasField("verdict"):
        return [*([paragraph(view.reason, "verdict doubtful")] if view.reason else []), *_next(next_step(view))]
    verdict = view.verdict
    kind = "verdict sound" if verdict.sound else "verdict doubtful"
    notes = [paragraph(note, "note") for note in verdict.notes]
    return [
        paragraph(verdict.sentence, kind),
        *notes,
        *_privacy(view),
        *_next(_beside_this_page(verdict.advice)),
        *reason,
    ]


def _privacy(view: pb.RunView) -> list[str]:
    """What the run cost of every site's privacy; nothing for a run without differential privacy."""
    private = spec_document(json.loads(view.spec or b"{}"))
    return [paragraph(f"Privacy: {run_line(private)}.", "note")] if private else []


def _beside_this_page(advice: str) -> str:
    """The advice without its command that writes the page in which it stands."""
    return "; ".join(part for part in advice.split("; ") if not part.startswith("dcfpca run report"))


def _next(advice: str) -> list[str]:
    return [f"<p><strong>Next:</strong> {escape(advice)}</p>"] if advice else []


def next_step(view: pb.RunView) -> str:
    """What an operator does about a run that has not finished; empty while there is nothing to do."""
    match view.status:
        case "paused":
            run = view.run_id
            return f"remove the cause, then dcfpca run resume {run}; or end it with dcfpca run finish {run}"
        case "failed" | "aborted":
            return "propose the run again when the cause is removed"
        case _:
            return f"wait for {', '.join(one.participant for one in view.waiting)}" if view.waiting else ""


def _awaited(view: pb.RunView) -> list[str]:
    """Who is awaited and why, and what happens when; nothing once the run is over."""
    if view.status in OVER or not (view.waiting or view.awaited or view.deadline_ms):
        return []
    late = {one.participant for one in view.waiting}
    rows = [(one.participant, _since(one), one.said or "–") for one in view.waiting]
    rows += [(name, "in time so far", "–") for name in view.awaited if name not in late][:MOST_NAMES]
    due = [paragraph(f"At {moment(view.deadline_ms)}: {view.at_deadline}.")] if view.deadline_ms else []
    return [section("Who is awaited", *due, table(("participant", "since", "its last message"), rows, stacks=True))]


def _since(one: pb.WaitingView) -> str:
    return f"{moment(one.since_ms)}, {'connected' if one.connected else 'away'}"


def _expected_errors(rounds: Sequence[pb.RoundView]) -> str:
    """For a private run, whose rounds report the expected error instead of a change."""
    titles = Titles("How far noise may have turned the subspace", "round", "expected error, sin θ")
    chart = svg.lines([Series("error", [one.change for one in rounds])], titles, first=rounds[0].round)
    sentence = "By the noise of all rounds so far. Every round of the schedule is taken, whatever the error."
    return section("Expected error", figure(chart, sentence))


def _convergence(view: pb.RunView, spec: Mapping[str, Any]) -> str:
    rounds, first = view.rounds, view.rounds[0].round
    change = Series("change", [one.change for one in rounds])
    tolerance = float(spec.get("tolerance") or 0)
    mark = Mark(tolerance, f"tolerance {tolerance:g}") if tolerance > 0 else None
    titles = Titles("How far the subspace moved in each round", "round", "change of the subspace")
    parts = [figure(svg.lines([change], titles, first=first, log=True, mark=mark), _last_change(view, tolerance))]
    noise = Series("noise", [one.noise for one in rounds], 4)
    threshold = Series("threshold", [one.threshold for one in rounds], 2)
    if any(math.isfinite(value) for value in (*noise.values, *threshold.values)):
        levels = Titles("Noise level and outlier threshold in each round", "round", "in units of the data")
        caption = "While the subspace is fitted, entries whose residual lies beyond the threshold count as outliers."
        parts.append(figure(svg.lines([threshold, noise], levels, first=first, log=True), caption))
    return section("Convergence", *parts)


def _last_change(view: pb.RunView, tolerance: float) -> str:
    """The last change beside the tolerance, and why a run may be over before it gets there."""
    last = view.rounds[-1].change
    if not math.isfinite(last):
        return "This method gives no such figure."
    if not tolerance:
        return f"Last: {number(last)}."
    if last < tolerance:
        return f"The last change, {number(last)}, is below the tolerance."
    early = " A run ends as soon as the next round would fall below it, or what still changes is below the noise."
    return f"The last change is {number(last)}." + (early if view.reason.startswith("converged") else "")


def _singular_values(last: pb.RoundView, spec: Mapping[str, Any]) -> str:
    values = list(last.singular_values)
    if not values:
        return section("Singular values", paragraph("The last round has none."))
    rank = last.rank
    kept = Series("in the low-rank part", [v if k < rank else math.nan for k, v in enumerate(values)], 1)
    left = Series("left out", [v if k >= rank else math.nan for k, v in enumerate(values)], 4)
    titles = Titles("Singular values of the cleaned data", "number", "singular value")
    shown = [kept, left] if rank < len(values) else [kept]
    drawing = svg.bars(shown, titles, first=1, log=_wide(values), mark=Mark(rank, f"rank {rank}"), over=True)
    bound = f", of at most {spec['max_rank']} allowed" if spec.get("max_rank") else ""
    parts = [figure(drawing, f"Of the cleaned data of all sites together. The rank is {rank}{bound}.")]
    lines = [(str(k + 1), f"{value:.6g}", "yes" if k < rank else "no") for k, value in enumerate(values)]
    return section("Singular values", *parts, folded("show the values", table(("#number", "#value", "kept"), lines)))


def _rank_curve(view: pb.RunView, spec: Mapping[str, Any]) -> str:
    """The error on hidden entries by rank; below 1 a rank predicts better than the features' medians do."""
    curve = list(view.rank_curve)
    titles = Titles("Error on hidden entries by rank", "rank", "error over that of the medians")
    series = [
        Series("error", [one.error for one in curve]),
        Series("± one standard error", [one.error + one.standard_error for one in curve], 4),
        Series("", [one.error - one.standard_error for one in curve], 4),
    ]
    chart = svg.lines(series, titles, places=[one.rank for one in curve], mark=Mark(1.0, "medians"))
    sentence = (
        f"{_why_this_rank(view, spec)} Below 1 a rank predicts entries that were hidden from it better than the "
        "features' medians do."
    )
    values = [(str(one.rank), f"{one.error:.4g}", f"{one.standard_error:.2g}") for one in curve]
    listed = folded("show the values", table(("#rank", "#error", "#standard error"), values))
    return section("Choice of the rank", figure(chart, sentence), listed)


def _why_this_rank(view: pb.RunView, spec: Mapping[str, Any]) -> str:
    """Who chose the rank: the spec, the fit itself (which then has tried no other rank), or the hidden entries."""
    rank = view.rounds[-1].rank
    if spec.get("rank"):
        return f"The spec asked for rank {rank}."
    if rank > 1 and [one.rank for one in view.rank_curve] == [0, rank]:
        return f"The fit found rank {rank} by itself, and the hidden entries confirm it."
    return f"Rank {rank} was chosen: the smallest within one standard error, and a twentieth, of the best."


def _wide(values: Sequence[float]) -> bool:
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) / min(positive) > 100


def _times(rounds: Sequence[pb.RoundView]) -> str:
    titles = Titles("Seconds that each round took", "round", "seconds")
    drawing = svg.bars([Series("seconds", [one.seconds for one in rounds])], titles, first=rounds[0].round)
    repeated = [f"{one.round} ({one.attempt} attempts)" for one in rounds if one.attempt > 1]
    sentence = f"Repeated: round {', '.join(repeated)}." if repeated else "No round had to be repeated."
    return section("Round times", figure(drawing, f"From opening a round to its consensus. {sentence}"))


def _bytes(rounds: Sequence[pb.RoundView], spec: Mapping[str, Any]) -> str:
    titles = Titles("Payload bytes of each round", "round", "kilobytes")
    series = [
        Series("from the sites", [one.bytes_received / 1000 for one in rounds], 1),
        Series("to the sites", [one.bytes_sent / 1000 for one in rounds], 2),
    ]
    caption = f"All sites together, {spec.get('aggregation')} aggregation."
    return section("Bytes", figure(svg.bars(series, titles, first=rounds[0].round), caption))


def _missed(rounds: Sequence[pb.RoundView]) -> str:
    """Which sites missed a round, which happens only where updates are summed in the clear."""
    missing = sorted({name for one in rounds for name in one.dropouts})
    return f"Missed a round: {listed(missing, MOST_NAMES)}." if missing else "Everybody took part in every round."


def _rounds(rounds: Sequence[pb.RoundView]) -> str:
    headings, *lines = round_rows(rounds)
    return table(headings, lines, stacks=True)


def _people(view: pb.RunView) -> str:
    rows = [
        (one.participant, "private" if one.private else "public", one.fingerprint[:16], one.signature.hex()[:16])
        for one in view.enrolled
    ]
    parts = [paragraph("Each consented by signing the digest of the spec below with its own key.", "note")]
    consented = table(("participant", "reconstruction", "certificate", "signature"), rows, stacks=True)
    parts.append(folded(f"show all {len(rows)}", consented) if len(rows) > MOST_NAMES else consented)
    if view.refusals:
        refused = [(one.participant, one.what, "; ".join(one.reasons)) for one in view.refusals]
        parts += [paragraph("Refusals:"), table(("participant", "what", "why"), refused, stacks=True)]
    return section("Who consented", *parts)


def _spec(view: pb.RunView, spec: Mapping[str, Any]) -> str:
    flat = {key: value for key, value in spec.items() if not isinstance(value, dict)}
    rows = [(key, _value(value)) for key, value in flat.items()]
    used = spec.get(str(spec.get("method")), {})
    rows += [(f"{spec.get('method')}.{key}", _value(value)) for key, value in used.items()]
    rows += [(f"privacy.{key}", _value(value)) for key, value in (spec.get("privacy") or {}).items()]
    digest = paragraph(f"SHA-256 {view.spec_sha256.hex()}", "note")
    chosen = table(("key", "value"), [(key, text) for key, text in rows if _is_plain(key)])
    inner = table(("key", "value"), [(key, text) for key, text in rows if not _is_plain(key)])
    return section("Spec", chosen, folded("all other keys, with the method's tunables", digest, inner))


def _is_plain(key: str) -> bool:
    return key in PLAIN_KEYS or key.startswith("privacy.")


def _value(value: Any) -> str:
    return "–" if value is None or value in ("", []) else value if isinstance(value, str) else json.dumps(value)

"""The pages of the console as HTML without scripts: proposals, runs, findings and the ledger. Pure."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from dcfpca.report.page import escape, paragraph, status_badge, table
from dcfpca.text.console import size
from participant.commands.approve import closes_ms
from participant.console.gate import Visit
from participant.console.proposal_text import compared, proposal_facts
from participant.findings.decisions import VERDICTS
from participant.findings.worklist import Finding
from participant.state.approvals import StandingApproval
from participant.state.ledger import NOT_SENT, Entry
from participant.state.store import RunRow

TABS = {"/proposals": "Proposals", "/runs": "Runs", "/findings": "Findings", "/ledger": "Ledger"}
STATES = {"open": "all but real", "all": "all", **{verdict: verdict for verdict in VERDICTS}}
SORTS = {"size": "by size", "sample": "by sample", "feature": "by feature", "cause": "by cause"}
ON_A_PAGE = 100


def frame(site: str, here: str, parts: Sequence[str], note: str = "", refresh: int = 0) -> str:
    """A whole page; `note` says what was just done."""
    links = "".join(
        f'<a href="{path}"{" aria-current=page" if path == here else ""}>{name}</a>' for path, name in TABS.items()
    )
    said = f'<p class="said" role="status">{escape(note)}</p>' if note else ""
    again = f'<meta http-equiv="refresh" content="{refresh}">' if refresh else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">{again}'
        f'<title>{TABS[here]} at {escape(site)}</title><link rel="stylesheet" href="/style.css"></head><body>'
        f"<header><strong>{escape(site)}</strong><nav>{links}</nav></header><main>{said}<h1>{TABS[here]}</h1>"
        f"{''.join(parts)}</main></body></html>"
    )


def _when(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"


def _title(row: RunRow) -> str:
    label = json.loads(row.spec).get("label", "")
    return escape(f"{label} (run {row.run_id})" if label else f"Run {row.run_id}")


def _form(action: str, visit: Visit, body: str) -> str:
    hidden = f'<input type="hidden" name="csrf" value="{visit.csrf}">'
    return f'<form method="post" action="{action}">{hidden}{body}</form>'


def _name_field(visit: Visit) -> str:
    value = escape(visit.name)
    return f'<label>Your name <input name="name" required maxlength="100" autocomplete="name" value="{value}"></label>'


def proposals_page(
    rows: Sequence[RunRow], every: Sequence[RunRow], likes: Sequence[StandingApproval], visit: Visit
) -> list[str]:
    """The runs that wait for a person, each with what it is, compared with `every` run before it, and two ways to
    answer; and standing approvals."""
    asked = [_proposal(row, every, visit) for row in rows] or [paragraph("No run waits for an answer.")]
    return [*asked, *(_standing(one, visit) for one in likes)]


def _standing(one: StandingApproval, visit: Visit) -> str:
    end = _form(f"/proposals/{escape(one.run_id)}/end", visit, f"{_name_field(visit)}<button>End this</button>")
    said = (
        f"Runs like {one.run_id} are approved by {one.approver} until {_when(one.expires_ms)}, unless there is another"
    )
    said += " reason to ask."
    return f'<article class="card">{paragraph(said)}{end}</article>'


def _proposal(row: RunRow, every: Sequence[RunRow], visit: Visit) -> str:
    told = [*proposal_facts(row.spec), *compared(row, every)]
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in told)
    asked = "".join(f'<p class="verdict">{escape(reason)}</p>' for reason in row.reasons)
    approve = (
        f"{_name_field(visit)}<label>In force for <select name=expires><option value=1d>a day</option>"
        "<option value=7d selected>a week</option><option value=30d>30 days</option></select></label>"
        "<label>Later runs with the same features, sites and settings <select name=like>"
        '<option value="">ask again</option><option value=90d>approved for 90 days</option>'
        "<option value=365d>approved for a year</option></select></label>"
        "<button>Approve</button>"
    )
    decline = (
        f"{_name_field(visit)}<label>Reason, which the operator reads "
        '<input name="reason" required maxlength="300"></label><button>Decline</button>'
    )
    run = escape(row.run_id)
    until = f"enrolment ends {_when(closes_ms(row))}" if row.status == "waiting" else "it waits for this site"
    return (
        f'<article class="card"><h2>{_title(row)}</h2><p class="note">Proposed {_when(row.proposed_ms)}; '
        f"{until}.</p>{asked}<dl>{facts}</dl><div class=answers>"
        f"{_form(f'/proposals/{run}/approve', visit, approve)}"
        f"{_form(f'/proposals/{run}/decline', visit, decline)}</div></article>"
    )


def runs_page(rows: Sequence[RunRow], entries: Sequence[Entry], finished: Mapping[str, Any]) -> list[str]:
    """Every run that was proposed here, the newest first, with what left in it and its verdict."""
    if not rows:
        return [paragraph("No run was proposed to this site yet.")]
    sent = [entry.item for entry in entries if entry.item.kind not in NOT_SENT]
    count, total = Counter(item.run_id for item in sent), Counter[str]()
    last = {item.run_id: item.round for item in sent if item.round is not None}
    for item in sent:
        total[item.run_id] += item.size
    cards = []
    for row in reversed(rows):
        verdict = finished.get(row.run_id, {}).get("verdict", {}).get("sentence", "")
        link = f'<p><a href="/findings?run={escape(row.run_id)}">Findings of this run</a></p>' if verdict else ""
        went = (
            f"{count[row.run_id]} messages of {size(total[row.run_id])} left"
            if count[row.run_id]
            else "nothing has left"
        )
        where = f", the last in round {last[row.run_id]}" if row.run_id in last else ""
        said = "".join(paragraph(text) for text in (verdict or row.outcome, *row.reasons) if text)
        cards.append(
            f'<article class="card"><h2>{_title(row)}</h2><p>{status_badge(row.status)}</p>'
            f'<p class="note">Proposed {_when(row.proposed_ms)}; {went}{where}.</p>{said}{link}</article>'
        )
    return cards


def findings_page(
    found: Sequence[Finding], total: int, asked: Mapping[str, str], runs: Mapping[str, str], visit: Visit
) -> list[str]:
    """The worklist of a run: search, filter, order, and for each finding a decision."""
    if not runs:
        return [paragraph("There are no results yet.")]
    first = int(asked["from"])
    shown = found[first : first + ON_A_PAGE]
    counted = f"{len(found)} of {total} findings" + (f", from the {first + 1}th" if first else "")
    links = [
        f'<a href="/findings?{urlencode({**asked, "from": place})}">{words}</a>'
        for place, words, there in (
            (max(first - ON_A_PAGE, 0), "Before", first > 0),
            (first + ON_A_PAGE, "Next", first + ON_A_PAGE < len(found)),
        )
        if there
    ]
    turn = f'<p class="turn">{" ".join(links)}</p>' if links else ""
    cards = [_finding(one, first + k, asked, visit) for k, one in enumerate(shown)]
    exports = '<p>Decisions: <a href="/decisions.csv">CSV</a> <a href="/decisions.parquet">Parquet</a></p>'
    who = _form("/name", visit, f"{_name_field(visit)}<button>{'Change' if visit.name else 'Sign as'}</button>")
    return [_search(asked, runs), f'<div class="who">{who}{paragraph(counted, "note")}</div>', *cards, turn, exports]


def _search(asked: Mapping[str, str], runs: Mapping[str, str]) -> str:
    def choice(name: str, label: str, options: Mapping[str, str]) -> str:
        made = "".join(
            f'<option value="{escape(value)}"{" selected" if value == asked[name] else ""}>{escape(text)}</option>'
            for value, text in options.items()
        )
        return f'<label>{label} <select name="{name}">{made}</select></label>'

    text = f'name="q" value="{escape(asked["q"])}" placeholder="id, feature, cause"'
    box = f'<label>Search <input type="search" {text}></label>'
    return (
        f'<form class="search" role="search" action="/findings">{box}{choice("run", "Result of", runs)}'
        f"{choice('show', 'Show', STATES)}{choice('sort', 'Order', SORTS)}<button>Show</button></form>"
    )


def _finding(one: Finding, place: int, asked: Mapping[str, str], visit: Visit) -> str:
    figures = "" if math.isnan(one.observed) else f": {one.observed:.6g}"
    figures += "" if math.isnan(one.expected) else f", expected {one.expected:.3g}"
    what = f"<b>{escape(one.feature)}</b>{figures}" if one.feature else "<b>the whole sample</b>"
    story = f'<p class="story">{escape(one.story[:1].upper() + one.story[1:])}</p>' if one.story else ""
    done = one.decision
    decided = (
        f'<p class="decided {done.verdict}">{done.verdict}, by {escape(done.name)}, {done.at}'
        f"{': ' + escape(done.note) if done.note else ''}</p>"
        if done
        else ""
    )
    hidden = {**asked, "sample": one.sample, "feature": one.feature, "value": one.place.value, "place": str(place)}
    kept = "".join(f'<input type="hidden" name="{name}" value="{escape(text)}">' for name, text in hidden.items())
    # Enter in the note presses a form's first button: one that does nothing, since a note is no decision.
    buttons = "<button disabled hidden></button>" + "".join(
        f'<button name="verdict" value="{verdict}">{verdict}</button>' for verdict in VERDICTS
    )
    note = f'<input name="note" maxlength="1000" placeholder="note" aria-label="Note on {escape(one.sample)}">'
    return (
        f'<article class="card finding" id="f{place}" tabindex="-1"><div><p><b>{escape(one.sample)}</b> {what}</p>'
        f'{story}<p class="note">{escape(one.unusual)}</p>{decided}</div>'
        f"{_form('/findings', visit, f'{kept}{note}<span class=buttons>{buttons}</span>')}</article>"
    )


def ledger_page(entries: Sequence[Entry], text: str, visit: Visit) -> list[str]:
    """What left, the newest first; `text` is searched for in every column."""
    lines = [
        (
            str(entry.sequence),
            _when(entry.at_ms).removesuffix(" UTC"),
            entry.item.run_id,
            "" if entry.item.round is None else str(entry.item.round),
            entry.item.kind,
            entry.item.shape,
            size(entry.item.size) if entry.item.kind not in NOT_SENT else "stays here",
            entry.item.detail,
        )
        for entry in reversed(entries)
    ]
    words = text.lower().split()
    fitting = [line for line in lines if all(word in " ".join(line).lower() for word in words)]
    box = f'<label>Search <input type="search" name="q" value="{escape(text)}"></label><button>Show</button>'
    headings = ("#no.", "when (UTC)", "run", "round", "message", "shape", "size", "detail")
    return [
        _form("/ledger/verify", visit, "<button>Verify the chain</button>"),
        f'<form class="search" role="search" action="/ledger">{box}</form>',
        paragraph(f"{len(fitting)} of {len(lines)} entries; the last {min(len(fitting), 500)} are shown.", "note"),
        table(headings, fitting[:500], stacks=True),
    ]

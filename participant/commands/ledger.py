"""What `ledger` prints: a table for people, a JSON document for scripts. It loads neither data nor numerics."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from dcfpca.text.console import Json, add_row, moment, result, say, show, size, table
from participant.state.ledger import NOT_SENT, Entry


def ledger_document(entries: Sequence[Entry], verified: int | None) -> Json:
    """What `ledger --json` prints."""
    listed: list[Json] = [
        {
            "sequence": entry.sequence,
            "at": moment(entry.at_ms),
            "run": entry.item.run_id,
            "round": entry.item.round,
            "attempt": entry.item.attempt,
            "type": entry.item.kind,
            "sent": entry.item.kind not in NOT_SENT,
            "shape": entry.item.shape,
            "bytes": entry.item.size,
            "sha256": entry.item.sha256.hex(),
            "detail": entry.item.detail,
        }
        for entry in entries
    ]
    total = sum(entry.item.size for entry in entries)
    return {"entries": listed, "bytes": total, "verified": verified}


def show_ledger(entries: Sequence[Entry], verified: int | None, *, every: bool) -> None:
    """One line per run and kind of message, with count and bytes; `every` lists each message."""
    if verified is not None:
        say(f"the chain of {verified} entries is whole")
    if not entries:
        say("nothing has left this site")
        return
    show(_each(entries) if every else _summary(entries))
    sent = [entry for entry in entries if entry.item.kind not in NOT_SENT]
    result(f"{len(sent)} messages, {size(sum(entry.item.size for entry in sent))} in all")


def _summary(entries: Sequence[Entry]) -> Any:
    made = table("run", "message", "#count", "#bytes", "rounds", "shape", "last", "detail")
    ordered = sorted(entries, key=lambda entry: (entry.item.run_id, entry.item.kind, entry.sequence))
    for (run_id, kind), group in groupby(ordered, key=lambda entry: (entry.item.run_id, entry.item.kind)):
        members = list(group)
        last = members[-1]
        rounds = sorted({entry.item.round for entry in members if entry.item.round is not None})
        span = "" if not rounds else f"{rounds[0]}–{rounds[-1]}" if len(rounds) > 1 else str(rounds[0])
        total = size(sum(entry.item.size for entry in members))
        cells = (run_id, kind, str(len(members)), total, span, last.item.shape, moment(last.at_ms), last.item.detail)
        add_row(made, *cells)
    return made


def _each(entries: Sequence[Entry]) -> Any:
    made = table("#", "at", "run", "#round", "#attempt", "message", "shape", "#bytes", "sha256", "detail")
    for entry in entries:
        item = entry.item
        place = ["" if number is None else str(number) for number in (item.round, item.attempt)]
        head = (str(entry.sequence), moment(entry.at_ms), item.run_id, *place)
        add_row(made, *head, item.kind, item.shape, str(item.size), item.sha256.hex()[:12], item.detail)
    return made

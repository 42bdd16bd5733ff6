"""What the subcommands print: tables for people, JSON documents for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from dcfpca.text.console import Json, add_row, moment, result, say, show, size, table
from participant.commands.feature_views import data_notes, feature_document, show_features
from participant.config import Config
from participant.data.feature_profile import profile_features
from participant.data.orientation import orientation_doubt
from participant.local_site import LocalSite
from participant.policy import COLUMNS_PER_RANK, SitePolicy
from participant.state.ledger import NOT_SENT, Entry

MOST_NAMED = 10


def site_document(config: Config, site: LocalSite) -> Json:
    """What `check --json` prints."""
    return {
        "participant": site.name,
        "consortium": site.credentials.identity.consortium,
        "certificate_until": site.credentials.not_after.isoformat(),
        "aggregator": config.aggregator.address,
        "data": {
            "path": config.data.origin,
            "rows": site.data.rows,
            "columns": site.data.columns,
            "missing": site.data.missing,
            "orientation": site.orientation,
            "notes": list(site.matrix.notes),
            "left_out": [str(place) for place in site.data.empty],
            "has_ids": bool(site.matrix.ids),
        },
        "features": [feature_document(one) for one in profile_features(site.matrix)],
        "policy": config.policy.model_dump(mode="json"),
        "remarks": remarks(config, site),
    }


def remarks(config: Config, site: LocalSite) -> list[str]:
    """What the site does under its policy and data, in sentences."""
    policy = config.policy
    said = [f"takes part in runs with {site.data.rows} rows, of method {' or '.join(policy.methods)}"]
    said.append(f"lets its update only into sums over {policy.min_cohort} or more participants")
    if policy.allow_plain:
        said.append("allows plain aggregation: the aggregator can then see this site's own updates")
    if policy.private or not policy.allow_export:
        said.append("refuses every export of its reconstruction" + (", being private" if policy.private else ""))
    else:
        said.append("sends its reconstruction to the operator when the spec announced it")
    if policy.manual_approval:
        said.append("enrols only after `dcfpca-participant approve RUN --by NAME`")
    said.append(_ranks(policy, site.data.columns))
    if site.data.missing and config.data.missing == "refuse":
        said.append(f'refuses every run: {site.data.missing} entries are missing, and [data] missing = "refuse"')
    if rare := rarely_observed(site):
        said.append(f"refuses runs with features that have fewer than {policy.min_entries} entries here: {rare}")
    said.append("rows must not be persons: every participant receives U, a line of scores for each row")
    if doubt := orientation_doubt(site.data.rows, site.data.columns, site.facts.features):
        said.append(f'WARNING: {doubt}; if they are persons, set [data] orientation = "samples-in-rows"')
    return said


def rarely_observed(site: LocalSite) -> str:
    """The features with fewer entries than the site's own limit, by name or number, with how many they have."""
    limit, names = site.facts.policy.min_entries, site.facts.features
    rare = [(row, count) for row, count in enumerate(site.data.entries) if count < limit]
    named = [f"{names[row] if names else row} ({count})" for row, count in rare[:MOST_NAMED]]
    return ", ".join(named) + (f" and {len(rare) - MOST_NAMED} more" if len(rare) > MOST_NAMED else "")


def _ranks(policy: SitePolicy, columns: int) -> str:
    """Which ranks the number of columns allows, by the site's own rule or by the default one."""
    if columns < (needed := policy.columns_needed(rank=1)):
        return f"refuses every run: it has {columns} columns, fewer than {needed} ([policy] min_columns)"
    if policy.min_columns:
        risk = f"an update of rank {columns} or more gives the site's data away"
        return f"takes part with its {columns} columns whatever the rank (min_columns = {policy.min_columns}); {risk}"
    most = min(columns // COLUMNS_PER_RANK, policy.max_rank)
    return f"takes part in runs of rank {most} or less, having {columns} columns"


def show_site(config: Config, site: LocalSite) -> None:
    """What `check` prints."""
    result(f"participant  {site.credentials.identity}")
    result(f"certificate  valid until {site.credentials.not_after:%Y-%m-%d}")
    result(f"aggregator   {config.aggregator.address}")
    data = site.data
    result(f"data         {config.data.origin}: {data.rows} rows × {data.columns} columns, {data.missing} missing")
    for note in data_notes(site):
        result(f"data         {note}")
    for remark in remarks(config, site):
        result(f"this site    {remark}")
    show_features(list(profile_features(site.matrix)))


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


def results_document(directory: Path, manifests: Sequence[dict[str, Any]]) -> Json:
    """What `results --json` prints."""
    listed = [manifest | {"directory": str(directory / manifest["run"])} for manifest in manifests]
    return {"results": listed}


def show_results(directory: Path, manifests: Sequence[dict[str, Any]]) -> None:
    """What `results` prints."""
    if not manifests:
        say(f"there are no results in {directory} yet")
        return
    made = table("run", "method", "#rounds", "#rank", "outcome", "files")
    for found in manifests:
        where = f"{directory / found['run']}/{{{','.join(found['files'])}}}"
        add_row(made, found["run"], found["method"], str(found["rounds"]), str(found["rank"]), found["outcome"], where)
    show(made)


def show_transform(report: dict[str, Any], out: Path) -> None:
    """What `transform` prints."""
    result(f"{report['columns']} columns cleaned with the model of run {report['run']} (rank {report['rank']})")
    if "threshold" in report:
        result(f"{report['outliers']} entries are outliers beyond {report['threshold']:.3g}; files in {out}")
        return
    rate = f"at a false discovery rate of {100 * report['flag_rate']:g} %"
    result(f"{report['outliers']} entries and {report['flagged_samples']} samples are flagged {rate}; files in {out}")

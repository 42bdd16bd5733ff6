"""What the subcommands print: tables for people, JSON documents for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dcfpca.text.console import Json, add_row, result, say, show, table
from participant.commands.feature_views import data_notes, feature_document, show_features
from participant.commands.privacy_views import BudgetView, budget_document, budget_remarks
from participant.config import Config
from participant.data.feature_profile import profile_features
from participant.data.orientation import orientation_doubt
from participant.local_site import LocalSite
from participant.policy import COLUMNS_PER_RANK, SitePolicy

MOST_NAMED = 10


def site_document(config: Config, site: LocalSite, budget: BudgetView, of_spec: Sequence[str] = ()) -> Json:
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
        "privacy": budget_document(config, site, budget),
        "remarks": [*remarks(config, site), *budget_remarks(config, site, budget), *of_spec],
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
    said.append(_ranks(policy, site.data.rows, site.data.columns))
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


def _ranks(policy: SitePolicy, rows: int, columns: int) -> str:
    """Which ranks the size of the data allows, by the site's own rule or by the default one."""
    if columns < (needed := policy.columns_needed(rank=1)):
        return f"refuses every run: it has {columns} columns, fewer than {needed} ([policy] min_columns)"
    if policy.min_columns:
        risk = f"an update of rank {columns} or more gives the site's data away"
        return f"takes part with its {columns} columns whatever the rank (min_columns = {policy.min_columns}); {risk}"
    most = min(columns // COLUMNS_PER_RANK, policy.max_rank, rows)
    return f"takes part in runs of rank {most} or less, having {rows} rows and {columns} columns"


def show_site(config: Config, site: LocalSite, budget: BudgetView, of_spec: Sequence[str] = ()) -> None:
    """What `check` prints."""
    result(f"participant  {site.credentials.identity}")
    result(f"certificate  valid until {site.credentials.not_after:%Y-%m-%d}")
    result(f"aggregator   {config.aggregator.address}")
    data = site.data
    result(f"data         {config.data.origin}: {data.rows} rows × {data.columns} columns, {data.missing} missing")
    for note in data_notes(site):
        result(f"data         {note}")
    for remark in (*remarks(config, site), *budget_remarks(config, site, budget), *of_spec):
        result(f"this site    {remark}")
    show_features(list(profile_features(site.matrix)))


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

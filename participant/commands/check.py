"""`dcfpca-participant check`: how the site would take part; its data, its features, and its privacy budget."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dcfpca.errors import listed
from dcfpca.privacy.zcdp import epsilon_of
from dcfpca.run_size import size_notes
from dcfpca.spec import RunSpec, parse_spec, read_spec_file
from dcfpca.text.console import Json, add_row, result, show, table
from participant.config import Config
from participant.data.data_config import RulesTable
from participant.data.facts import KIND_TEXTS, FeatureProfile, orientation_doubt, profile_features, sampled
from participant.data.suggested_rules import proposed_rules
from participant.local_site import LocalSite
from participant.policy import COLUMNS_PER_RANK, Accept, Refuse, SitePolicy
from participant.privacy_account import without_privacy
from participant.privacy_review import Spending, clock_remark, composed, epsilon_left, rho_asked, rounded_down
from participant.review import review
from participant.state.database import DATABASE
from participant.state.privacy_budget import PrivacyRecord, spending_of
from participant.state.store import Store

MOST_NAMED = 10
FEWEST_SHOWING = 20
"""Samples that can suggest a rule."""


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
    said = [f"takes part in runs with {site.data.rows} features, of method {' or '.join(policy.methods)}"]
    said.append(f"takes part only in sums over {policy.min_cohort} or more participants")
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
    said.append("features must not be persons: every participant receives U, a line of scores for each feature")
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
        return f"refuses every run: it has {columns} samples, fewer than {needed} ([policy] min_columns)"
    if policy.min_columns:
        risk = f"an update of rank {columns} or more reveals the site's data"
        return f"takes part with its {columns} samples whatever the rank (min_columns = {policy.min_columns}); {risk}"
    most = min(columns // COLUMNS_PER_RANK, policy.max_rank, rows)
    return f"takes part in runs of rank {most} or less, having {rows} features and {columns} samples"


def show_site(config: Config, site: LocalSite, budget: BudgetView, of_spec: Sequence[str] = ()) -> None:
    """What `check` prints."""
    result(f"participant  {site.credentials.identity}")
    result(f"certificate  valid until {site.credentials.not_after:%Y-%m-%d}")
    result(f"aggregator   {config.aggregator.address}")
    data = site.data
    result(f"data         {config.data.origin}: {data.rows} features × {data.columns} samples, {data.missing} missing")
    for note in data_notes(site):
        result(f"data         {note}")
    for remark in (*remarks(config, site), *budget_remarks(config, site, budget), *of_spec):
        result(f"this site    {remark}")
    values = sampled(site.matrix.columns)
    profiles = list(profile_features(site.matrix, values))
    show_features(profiles)
    enough = bool(site.matrix.features) and data.columns >= FEWEST_SHOWING
    if enough and config.rules == RulesTable() and (lines := proposed_rules(profiles, values)):
        result("\nrules that this data suggests, to paste into the configuration and correct:\n")
        for line in lines:
            result(line)


MOST_LISTED = 60


def data_notes(site: LocalSite) -> list[str]:
    """What was recognised while reading, and which samples have no entry."""
    said = list(site.matrix.notes)
    if site.data.empty:
        lines = site.matrix.lines
        named = listed([f"line {lines[k]}" if lines else str(k) for k in site.data.empty])
        counted = "" if lines else " (counted from 0)"
        said.append(f"{len(site.data.empty)} samples have no entry and are left out: {named}{counted}")
    without = "called by their line in the file" if site.matrix.lines else "numbered from 0"
    stay = "its samples have ids, which stay here"
    said.append(stay if site.matrix.ids else f"its samples have no ids ([data] id_column): they are {without}")
    return said


def feature_document(one: FeatureProfile) -> dict[str, Json]:
    """A feature in `check --json`."""
    return asdict(one) | {"carries_low_rank": one.carries_low_rank}


def show_features(profiles: Sequence[FeatureProfile]) -> None:
    """A line for each feature, of many only the first, and a sentence about those that cannot share a pattern."""
    made = table("feature", "what it is", "#missing", "#median", "#MAD", "#least", "#greatest")
    for one in profiles[:MOST_LISTED]:
        figures = (f"{value:.4g}" for value in (one.median, one.mad, one.least, one.greatest))
        add_row(made, one.name, KIND_TEXTS[one.kind], f"{one.missing_share:.0%}", *figures)
    show(made)
    if len(profiles) > MOST_LISTED:
        result(f"and {len(profiles) - MOST_LISTED} more features; --json lists all")
    if useless := [one.name for one in profiles if not one.carries_low_rank]:
        result(f"cannot carry a low-rank part, being nearly constant or empty here: {listed(useless, 20)}")
    if codes := [one.name for one in profiles if one.kind == "codes"]:
        result(f"may be categories coded as numbers, whose order must mean something: {listed(codes, 20)}")


@dataclass(frozen=True, slots=True)
class BudgetView:
    """What was spent on the site's data until now, and the runs without privacy over it."""

    spent: Spending
    runs_without: tuple[str, ...]


def budget_of(config: Config, site: LocalSite) -> BudgetView:
    """The budget as the ledger and the second record have it; nothing spent where there is no state yet."""
    now_ms, columns = time.time_ns() // 1_000_000, site.column_set
    if (config.state.dir / DATABASE).exists():
        budget = Store(config.state.dir, config.results.dir).privacy
        return BudgetView(budget.spending(columns, now_ms), budget.runs_without(columns))
    charges = PrivacyRecord(config.results.dir).standing()  # on which columns is not known without the state
    return BudgetView(spending_of(charges, composed(one.rho for one in charges), now_ms), ())


def budget_remarks(config: Config, site: LocalSite, view: BudgetView) -> list[str]:
    """The budget in sentences; empty where the site has no limit and has spent nothing."""
    policy, delta, said = config.policy, config.policy.max_delta, list[str]()
    if policy.require_privacy:
        said.append("takes part only in runs with differential privacy")
    for limit, rho, where in (
        (policy.max_epsilon, view.spent.data, "on this data"),
        (policy.max_epsilon_year, view.spent.year, "in the last 365 days"),
    ):
        if limit is not None:
            left = rounded_down(epsilon_left(limit, rho, delta))
            spent = f"has spent ε = {epsilon_of(rho, delta):.3g} of {limit:g} {where} at δ = {delta:g}"
            said.append(f"{spent}; ε = {left:g} is left for one run")
        elif rho:
            said.append(f"has spent ε = {epsilon_of(rho, delta):.3g} {where} at δ = {delta:g}, without a limit")
    if said and (remark := clock_remark(view.spent)):
        said.append(f"WARNING: {remark}")
    if said and view.runs_without:
        said.append(without_privacy(view.runs_without))
    if said and delta * site.data.columns >= 1.0:
        said.append(f"WARNING: max_delta = {delta:g} is not below one over the number of samples; lower it")
    return said


def read_spec(path: Path, site: LocalSite) -> RunSpec:
    """The spec in a file; where it states neither its features nor their number, they are the site's."""
    keys = read_spec_file(path)
    return parse_spec(keys if keys.get("features") else {"rows": site.data.rows} | keys)


def cost_remarks(spec: RunSpec, config: Config, site: LocalSite, view: BudgetView) -> list[str]:
    """What a run with this spec would cost here, what would be left, and whether the site would join it."""
    said = [] if spec.privacy is None else [_cost(spec, config, site, view)]
    if spec.privacy is None:
        said.append("a run with this spec has no differential privacy: what it reveals about one sample is not bounded")
    said += [f"expects: {note}" for note in size_notes(spec, len(spec.participants))]
    verdict = review(spec, site.facts, spent=view.spent)
    if isinstance(verdict, Refuse):
        return [*said, *(f"would refuse it: {reason}" for reason in verdict.reasons)]
    assert isinstance(verdict, Accept)
    return [*said, "would join it" + (", once somebody approves" if verdict.needs_approval else "")]


def _cost(spec: RunSpec, config: Config, site: LocalSite, view: BudgetView) -> str:
    assert spec.privacy is not None
    privacy, delta = spec.privacy, spec.privacy.delta
    rho = rho_asked(privacy)
    after = composed((view.spent.data, rho))
    said = f"a run with this spec costs ε = {privacy.epsilon:g} at δ = {delta:g} (ρ = {rho:.3g}) for one {site.unit}"
    said += f", after which ε = {epsilon_of(after, delta):.3g} is spent on this data"
    if config.policy.max_epsilon is None:
        return said
    left = rounded_down(epsilon_left(config.policy.max_epsilon, after, delta))
    return f"{said} and ε = {left:g} is left for one more run"


def budget_document(config: Config, site: LocalSite, view: BudgetView) -> Json:
    """What `check --json` says of the budget."""
    delta = config.policy.max_delta
    document: dict[str, Any] = {
        "unit": site.unit,
        "delta": delta,
        "rho_over_this_data": view.spent.data,
        "epsilon_over_this_data": epsilon_of(view.spent.data, delta),
        "epsilon_last_365_days": epsilon_of(view.spent.year, delta),
        "runs_without_privacy": list(view.runs_without),
    }
    return document

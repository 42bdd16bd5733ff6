"""What `dcfpca-participant check` says of the privacy budget, and of the cost of a run with a given spec."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dcfpca.errors import BadInput
from dcfpca.privacy.zcdp import epsilon_of
from dcfpca.spec import RunSpec, parse_spec, parse_spec_toml
from dcfpca.text.console import Json
from participant.config import Config
from participant.local_site import LocalSite
from participant.policy import Accept, Refuse, review
from participant.privacy_account import without_privacy
from participant.privacy_review import Spending, clock_remark, composed, epsilon_left, rho_asked, rounded_down
from participant.state.database import DATABASE
from participant.state.privacy_budget import spending_of
from participant.state.privacy_record import PrivacyRecord
from participant.state.store import Store


@dataclass(frozen=True, slots=True)
class BudgetView:
    """What was spent on the site's data until now, and the runs without privacy over it."""

    spent: Spending
    runs_without: tuple[str, ...]


def budget_of(config: Config, site: LocalSite) -> BudgetView:
    """The budget as the ledger and the second record have it; nothing spent where there is no state yet."""
    now_ms, data = time.time_ns() // 1_000_000, site.data.sha256
    if (config.state.dir / DATABASE).exists():
        budget = Store(config.state.dir, config.results.dir).privacy
        return BudgetView(budget.spending(data, now_ms), budget.runs_without(data))
    return BudgetView(spending_of(PrivacyRecord(config.results.dir).standing(), data, now_ms), ())


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
            told = f"has spent ε = {epsilon_of(rho, delta):.3g} of {limit:g} {where} at δ = {delta:g}"
            said.append(f"{told}; ε = {left:g} is left for one run")
        elif rho:
            said.append(f"has spent ε = {epsilon_of(rho, delta):.3g} {where} at δ = {delta:g}, without a limit")
    if said and (remark := clock_remark(view.spent)):
        said.append(f"WARNING: {remark}")
    if said and view.runs_without:
        said.append(without_privacy(view.runs_without))
    if said and delta * site.data.columns >= 1.0:
        said.append(f"WARNING: max_delta = {delta:g} is not below one over the number of columns; lower it")
    return said


def read_spec(path: Path, site: LocalSite) -> RunSpec:
    """The spec in a file; where it states neither its number of rows nor its features, they are the site's."""
    try:
        keys = parse_spec_toml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError):
        raise BadInput(f"the spec {path} cannot be read", "check the path") from None
    return parse_spec(keys if keys.get("features") else {"rows": site.data.rows} | keys)


def cost_remarks(spec: RunSpec, config: Config, site: LocalSite, view: BudgetView) -> list[str]:
    """What a run with this spec would cost here, what would be left, and whether the site would join it."""
    said = [] if spec.privacy is None else [_cost(spec, config, site, view)]
    if spec.privacy is None:
        said.append("a run with this spec has no differential privacy: what it tells of one column is not bounded")
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
    told: dict[str, Any] = {
        "unit": site.unit,
        "delta": delta,
        "rho_over_this_data": view.spent.data,
        "epsilon_over_this_data": epsilon_of(view.spent.data, delta),
        "epsilon_last_365_days": epsilon_of(view.spent.year, delta),
        "runs_without_privacy": list(view.runs_without),
    }
    return told

"""What a run has cost of the privacy of this site's data, with all other runs over it: figures and a paragraph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dcfpca.privacy.settings import PrivacySettings
from dcfpca.privacy.statement import conspiracy, meaning
from dcfpca.privacy.zcdp import epsilon_of
from dcfpca.secagg.column_sets import ColumnSet
from participant.policy import SitePolicy
from participant.privacy_review import epsilon_left, rho_asked, rounded_down
from participant.state.privacy_budget import PrivacyBudget, Unit

MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class PrivacyAccount:
    """One run with `privacy`, ρ of all runs over the same data and of the last 365 days, and runs without privacy."""

    privacy: PrivacySettings
    unit: Unit
    runs: int
    data_rho: float
    year_rho: float
    runs_without: tuple[str, ...]
    limit: float | None

    def document(self) -> dict[str, Any]:
        """As a manifest keeps it."""
        return {
            "unit": self.unit,
            "epsilon": self.privacy.epsilon,
            "delta": self.privacy.delta,
            "rho": rho_asked(self.privacy),
            "conspirators": self.privacy.conspirators,
            "runs_over_this_data": self.runs,
            "rho_over_this_data": self.data_rho,
            "epsilon_over_this_data": self._epsilon(self.data_rho),
            "epsilon_last_365_days": self._epsilon(self.year_rho),
            "runs_without_privacy": list(self.runs_without),
            "sentence": self.paragraph(),
        }

    def paragraph(self) -> str:
        """What was spent and what it means, for a clinician or a security officer."""
        parts = [meaning(self.privacy.epsilon, self.privacy.delta, self.unit), conspiracy(self.privacy.conspirators)]
        if self.runs > 1:
            parts.append(
                f"All {self.runs} such runs over this data together have ε = {self._epsilon(self.data_rho):.3g}."
            )
        if self.limit is not None:
            left = rounded_down(epsilon_left(self.limit, self.data_rho, self.privacy.delta))
            parts.append(f"The site allows ε = {self.limit:g} in all, of which one more run may spend ε = {left:g}.")
        if self.runs_without:
            parts.append(without_privacy(self.runs_without))
        parts.append("Results in this folder are formed from the exact data and stay at the site.")
        return " ".join(parts)

    def _epsilon(self, rho: float) -> float:
        return epsilon_of(rho, self.privacy.delta)


def without_privacy(runs: tuple[str, ...]) -> str:
    """A warning that runs without privacy over the same data void the promise."""
    named = ", ".join(runs[:MOST_NAMED]) + (f" and {len(runs) - MOST_NAMED} more" if len(runs) > MOST_NAMED else "")
    count = "One run without privacy was" if len(runs) == 1 else f"{len(runs)} runs without privacy were"
    return f"BUT: {count} held over the same data ({named}), so nothing bounds what was revealed: this promise is void."


def account_of(
    budget: PrivacyBudget, privacy: PrivacySettings, policy: SitePolicy, columns: ColumnSet, unit: Unit, now_ms: int
) -> PrivacyAccount:
    """The account after a run with these settings has been charged."""
    spent = budget.spending(columns, now_ms)
    runs, without = len(budget.charges_on(columns)), budget.runs_without(columns)
    return PrivacyAccount(privacy, unit, runs, spent.data, spent.year, without, policy.max_epsilon)
